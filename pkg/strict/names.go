package strict

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	yamlv2 "go.yaml.in/yaml/v2"
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

// whereIs is the path below a type to a key of that name, empty if there is none: the one of which the
// document has most, and of those the shortest.
func whereIs(key string, t reflect.Type, document any) string {
	var best place
	for depth := range deepestKey {
		search(key, place{}, t, document, depth, &best)
	}
	return best.path
}

// place is where a key belongs.
type place struct {
	path string
	// missing is how many objects of the path the document does not have.
	missing int
}

// search looks for a key at a depth. It skips metadata, which has too many names.
func search(key string, at place, t reflect.Type, value any, depth int, best *place) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice {
		at.path += "[]"
		list, _ := value.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		for _, entry := range list {
			search(key, at, t.Elem(), entry, depth, best)
		}
		return
	}
	if t.Kind() != reflect.Struct || at.path == "metadata" || judgesItself(t) {
		return
	}
	fields := fieldsOf(t)
	if depth == 0 {
		if _, ok := fields[key]; ok && at.path != "" && (best.path == "" || at.missing < best.missing) {
			*best = at
		}
		return
	}
	object, _ := value.(yamlv2.MapSlice)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		next := place{Key(at.path, name), at.missing + 1}
		var below any
		if i := slices.IndexFunc(object, func(item yamlv2.MapItem) bool { return item.Key == name }); i >= 0 {
			next.missing, below = at.missing, object[i].Value
		}
		search(key, next, fields[name], below, depth-1, best)
	}
}
