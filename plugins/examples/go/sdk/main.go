// Command sdk calls every host function; the first byte of its payload selects which.
package main

import "github.com/ckptd/ckptd/plugins/pdk"

var config []byte

//go:wasmexport ckptd_configure
func configure() int32 {
	return pdk.Configure(func(c []byte) error {
		if string(c) == `{"bad":true}` {
			return pdk.Fail(20, "bad")
		}
		config = c
		return nil
	})
}

//go:wasmexport on_pre_save
func onPreSave() int32 { return pdk.Run(do) }

func main() {}

func do(in *pdk.Input) ([]byte, error) {
	switch in.Payload[0] {
	case 'm':
		return in.Meta, nil
	case 'c':
		return config, nil
	case 'x':
		return nil, pdk.Reject("no")
	case 'f':
		return nil, pdk.Fail(20, "broken")
	case 'l':
		pdk.Log(pdk.LevelWarn, "hello")
		pdk.Finding("rule", "/path", 3)
	case 'r':
		return pdk.RedactBuiltin("personal", in.Payload)
	case 'p':
		p, err := pdk.Pseudonym(7, in.Payload)
		return p[:], err
	case 'b':
		id, err := pdk.PutBlob(in.Payload)
		return id[:], err
	}
	return nil, nil
}
