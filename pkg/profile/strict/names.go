package strict

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// fieldsOf are the fields of a struct by their JSON names, those of embedded
// structs among them.
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

// near is the name that was probably meant by a key, empty where none is near:
// another case, or at most one wrong letter in four. Two swapped letters count as two.
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

// longestKey is the longest key for which a near name is looked for: the time that
// takes grows with its square.
const longestKey = 64

// deepestKey is how deep a key is looked for: types can hold themselves.
const deepestKey = 6

// whereIs is the shortest path below a type where there is a key of that name,
// empty where there is none.
func whereIs(key string, t reflect.Type) string {
	for depth := range deepestKey {
		if path := search(key, "", t, depth); path != "" {
			return path
		}
	}
	return ""
}

// search looks for a key so many objects deep. Metadata has too many names to guess
// by.
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
