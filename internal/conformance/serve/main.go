// Serve runs the conformance suite with a client that is another program: it writes tasks to standard output and reads
// results from standard input, a line of JSON each. The README of internal/conformance has an example.
package main

import (
	"fmt"
	"os"

	"github.com/ckptd/ckptd/internal/conformance"
)

func main() {
	problems, err := conformance.Serve(os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || problems > 0 {
		os.Exit(1)
	}
}
