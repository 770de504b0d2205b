package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
)

// Task is a script for a client to play, at the address of the server that replays its exchanges.
type Task struct {
	Address string `json:"address"`
	Script
}

// Serve runs the scripts whose names match run, all if it is nil, with a client that is another
// program. It writes each as a line of JSON, a Task, and reads a line with the results of its
// calls. It writes a line to log for each problem, and returns their number.
func Serve(in io.Reader, out, log io.Writer, run *regexp.Regexp) (problems int, err error) {
	scripts, err := Scripts()
	if err != nil {
		return 0, err
	}
	results, tasks := json.NewDecoder(in), json.NewEncoder(out)
	for _, s := range scripts {
		if run != nil && !run.MatchString(s.Name) {
			continue
		}
		got, replay, err := serve(s, results, tasks)
		if err != nil {
			return problems, fmt.Errorf("%s: %w", s.Name, err)
		}
		for _, problem := range append(s.Check(got), replay.End()...) {
			problems++
			fmt.Fprintf(log, "%s: %s\n", s.Name, problem)
		}
	}
	return problems, nil
}

// serve runs one script.
func serve(s *Script, results *json.Decoder, tasks *json.Encoder) (got []Result, replay *Replay, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	replay = NewReplay(s)
	server := &http.Server{Handler: replay}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	if err = tasks.Encode(Task{"http://" + l.Addr().String(), *s}); err == nil {
		err = results.Decode(&got)
	}
	err = errors.Join(err, server.Close())
	<-served
	return got, replay, err
}
