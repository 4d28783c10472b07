package strict

import (
	"maps"
	"reflect"
	"slices"
	"strings"
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
// another case, or at most one wrong letter in four.
func near(key string, names []string) string {
	if len(key) > longestKey {
		return ""
	}
	best, least := "", max(1, len(key)/4)+1
	for _, name := range names {
		if strings.EqualFold(key, name) {
			return name
		}
		if d := distance(strings.ToLower(key), strings.ToLower(name)); d < least && d < min(len(key), len(name)) {
			best, least = name, d
		}
	}
	return best
}

// distance is how many letters must be put in, taken out, exchanged or swapped
// with their neighbour to make b of a.
func distance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	rows := make([][]int, len(ra)+1)
	for i := range rows {
		rows[i] = make([]int, len(rb)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(ra); i++ {
		for j := 1; j <= len(rb); j++ {
			cost := 1
			if ra[i-1] == rb[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(ra)][len(rb)]
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
