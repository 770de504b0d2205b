// Package hostile has no product code: its tests run hostile plugins on a store. Package
// plugins/hostile tests that the host survives them; these tests show that they leave nothing in
// the store.
package hostile
