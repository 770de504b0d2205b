package schema

import (
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// alongside are the schemas that a schema applies to the same value.
func alongside(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		all = append(all, s.DynamicRef.Ref)
	}
	all = append(all, s.AllOf...)
	all = append(all, s.AnyOf...)
	all = append(all, s.OneOf...)
	for _, child := range s.DependentSchemas {
		all = append(all, child)
	}
	for _, child := range s.Dependencies {
		all = add(all, child)
	}
	return present(all)
}

// below are the schemas that a schema applies to parts of the value, without those of named
// members.
func below(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema}
	all = append(all, s.PrefixItems...)
	for _, child := range s.PatternProperties {
		all = append(all, child)
	}
	all = add(all, s.AdditionalProperties)
	all = add(all, s.AdditionalItems)
	all = add(all, s.Items)
	return present(all)
}

// add adds a value that the library has as one of several types.
func add(all []*jsonschema.Schema, child any) []*jsonschema.Schema {
	switch child := child.(type) {
	case *jsonschema.Schema:
		return append(all, child)
	case []*jsonschema.Schema:
		return append(all, child...)
	}
	return all
}

func present(all []*jsonschema.Schema) []*jsonschema.Schema {
	found := all[:0]
	for _, s := range all {
		if s != nil {
			found = append(found, s)
		}
	}
	return found
}

// reachable are the schemas that checking with a schema may apply.
func reachable(s *jsonschema.Schema) map[*jsonschema.Schema]bool {
	found := map[*jsonschema.Schema]bool{s: true}
	for left := []*jsonschema.Schema{s}; len(left) > 0; {
		s, left = left[0], left[1:]
		next := append(alongside(s), below(s)...)
		for _, child := range s.Properties {
			next = append(next, child)
		}
		for _, child := range next {
			if !found[child] {
				found[child] = true
				left = append(left, child)
			}
		}
	}
	return found
}

// longestChain is the maximum number of schemas that are applied to one value within each other. If
// one refers to itself, or to a schema known only during the check, it is the number of all
// schemas: the library notices a cycle after going around it.
func longestChain(root *jsonschema.Schema) int {
	all := reachable(root)
	known := map[*jsonschema.Schema]int{} // -1: being looked at
	var longest func(s *jsonschema.Schema) int
	longest = func(s *jsonschema.Schema) int {
		if n, ok := known[s]; ok {
			return n
		}
		known[s] = -1
		most := 0
		for _, child := range alongside(s) {
			n := longest(child)
			if n < 0 {
				return -1
			}
			most = max(most, n)
		}
		known[s] = most + 1
		return most + 1
	}
	chain := 1
	for s := range all {
		n := longest(s)
		if n < 0 || s.DynamicRef != nil || s.RecursiveRef != nil {
			return len(all)
		}
		chain = max(chain, n)
	}
	return chain
}
