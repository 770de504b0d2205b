package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ckptd/ckptd/client"
	"github.com/ckptd/ckptd/engine"
)

// An agent saves its state after every step and sends only what changed. After a crash it goes on
// from the newest one.
func Example() {
	ctx := context.Background()
	store, err := client.Dial("unix:data.sock", client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	session := store.Thread(engine.Ref{Tenant: "default", User: "local", Thread: "support-42"}).Session()

	cp, err := session.Save(ctx, engine.Draft{Step: 1, Channels: []engine.Change{{Name: "state", Type: "json", Data: []byte(`{"messages":["hi"]}`)}}})
	if err != nil {
		log.Fatal(err)
	}
	_, err = session.Save(ctx, engine.Draft{Step: 2, Expect: engine.ExpectHead(cp.Seq),
		Channels: []engine.Change{{Name: "state", Type: "json", Data: []byte(`{"messages":["hi","hello"]}`)}}})
	if err != nil {
		log.Fatal(err)
	}
	newest, err := session.Load(ctx, engine.Latest)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("step %d: %s\n", newest.Step, newest.Channels[0].Data)
}

// A watch goes on by itself when its connection breaks; the cursor of an event goes on in another
// process.
func ExampleStore_Watch() {
	store, err := client.Dial("unix:data.sock", client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	for event, err := range store.Watch(context.Background(), engine.WatchScope{Tenant: "default"}, "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Ref.Thread, event.Seq, event.Status, event.Cursor)
	}
}
