package redact

import (
	"strconv"
	"strings"
)

// paths is a list of patterns of JSON pointers.
type paths [][]string

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

func parsePaths(field string, list []string) (paths, error) {
	var out paths
	for i, text := range list {
		if text != "" && text[0] != '/' {
			return nil, wrong("%s[%d] %q: begin it with /", field, i, text)
		}
		parts := strings.Split(text, "/")[1:]
		for k := range parts {
			parts[k] = unescapePointer.Replace(parts[k])
		}
		out = append(out, parts)
	}
	return out, nil
}

// indexed reports whether a pattern refers to an array element by its index, or could.
func (p paths) indexed() bool {
	for _, pattern := range p {
		for _, part := range pattern {
			if _, err := strconv.ParseUint(part, 10, 64); err == nil {
				return true
			}
		}
	}
	return false
}

// match reports whether a pattern matches the path in names.
func (p paths) match(names []string) bool {
	for _, pattern := range p {
		if matchPath(pattern, names) {
			return true
		}
	}
	return false
}

func matchPath(pattern, names []string) bool {
	for i, part := range pattern {
		if part == "**" {
			for k := 0; k <= len(names)-i; k++ {
				if matchPath(pattern[i+1:], names[i+k:]) {
					return true
				}
			}
			return false
		}
		if i >= len(names) || part != "*" && part != names[i] {
			return false
		}
	}
	return len(pattern) == len(names)
}

// judge reports whether the current value is allowed to stay or must go, judging by its path and
// the name of its member.
func (s *scan) judge() (allow, block bool) {
	if len(s.path) == 0 {
		return s.judgePath()
	}
	if f := &s.path[len(s.path)-1]; f.object && f.key != nil {
		allow, block = f.key.allow, f.key.block
	}
	if len(s.r.allowPaths)+len(s.r.blockPaths) > 0 {
		a, b := s.judgePath()
		allow, block = allow || a, block || b
	}
	return allow, block
}

func (s *scan) judgePath() (allow, block bool) {
	if len(s.r.allowPaths)+len(s.r.blockPaths) == 0 {
		return false, false
	}
	names := make([]string, len(s.path))
	for i := range s.path {
		if f := &s.path[i]; f.object && f.key != nil {
			names[i] = f.key.name
		} else {
			names[i] = strconv.Itoa(f.index)
		}
	}
	return s.r.allowPaths.match(names), s.r.blockPaths.match(names)
}
