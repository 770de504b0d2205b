// Package hostile holds no product code: its tests run hostile plugins over a store. What the host survives is tested in
// plugins/hostile; here it is what is stored after them: nothing.
package hostile
