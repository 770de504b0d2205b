// Serve runs the conformance suite with a client that is another program: it writes tasks to
// standard output and reads results from standard input, a line of JSON each. With -run it runs
// only the scripts whose names match. The README of internal/conformance has an example.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"

	"github.com/ckptd/ckptd/internal/conformance"
)

func main() {
	var run *regexp.Regexp
	flag.Func("run", "run only the scripts whose names match this `regexp`", func(text string) (err error) {
		run, err = regexp.Compile(text)
		return err
	})
	flag.Parse()
	problems, err := conformance.Serve(os.Stdin, os.Stdout, os.Stderr, run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || problems > 0 {
		os.Exit(1)
	}
}
