package strict

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// fieldsOf are the fields of a struct and its embedded structs, by their JSON names.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			maps.Copy(fields, fieldsOf(f.Type))
		default:
			if name == "" {
				name = f.Name
			}
			fields[name] = f.Type
		}
	}
	return fields
}

// near is the name that was probably meant by a key, empty if none is near: it differs in case, or
// in at most one letter in four. Two swapped letters count as two.
func near(key string, names []string) string {
	if len(key) > longestKey {
		return ""
	}
	best, least := "", max(1, len(key)/4)+1
	for _, name := range names {
		if strings.EqualFold(key, name) {
			return name
		}
		if d := levenshtein.ComputeDistance(strings.ToLower(key), strings.ToLower(name)); d < least && d < min(len(key), len(name)) {
			best, least = name, d
		}
	}
	return best
}

// longestKey limits the length of keys for which near looks: its time grows quadratically.
const longestKey = 64

// deepestKey limits the depth of whereIs: types can be recursive.
const deepestKey = 6

// whereIs is the shortest path below a type to a key of that name, empty if there is none.
func whereIs(key string, t reflect.Type) string {
	for depth := range deepestKey {
		if path := search(key, "", t, depth); path != "" {
			return path
		}
	}
	return ""
}

// search looks for a key at a depth. It skips metadata, which has too many names.
func search(key, path string, t reflect.Type, depth int) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice {
		return search(key, path+"[]", t.Elem(), depth)
	}
	if t.Kind() != reflect.Struct || path == "metadata" || judgesItself(t) {
		return ""
	}
	fields := fieldsOf(t)
	if depth == 0 {
		if _, ok := fields[key]; ok {
			return path
		}
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if found := search(key, Key(path, name), fields[name], depth-1); found != "" {
			return found
		}
	}
	return ""
}
