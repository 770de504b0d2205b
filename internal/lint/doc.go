// Package lint has no product code: its tests check rules that the compiler does not, such as the
// import directions of docs/design.md and that the example in the README builds and prints what the
// README says.
package lint
