// Package lint has no product code. Its tests check rules that the compiler does not: import
// directions, locks, and that the examples, links, files and functions in the README and in docs/
// exist and work.
package lint
