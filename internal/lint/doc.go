// Package lint has no product code: its tests check rules that the compiler does not, such as the
// import directions of docs/design.md and that the example in the README builds and prints the
// output shown there.
package lint
