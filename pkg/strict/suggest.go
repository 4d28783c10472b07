package strict

import (
	"cmp"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// unknown adds the problem of a key that its object does not have, with a suggestion.
func (p *Problems) unknown(path string, t reflect.Type, anyCase bool) {
	all := map[string][]string{}
	fields(all, "", t, 0)
	key, within := path, "" // the longest matching path of an object
	for object := range all {
		if found := keyOf(object).FindStringSubmatch(path); found != nil && len(object) > len(within) {
			key, within = found[1], object
		}
	}
	names := all[within]
	slices.Sort(names)
	meant := near(key, names)
	if anyCase && strings.EqualFold(key, meant) {
		return
	}
	switch where := objectsWith(key, all); {
	case meant != "":
		p.Add(path, "unknown key; did you mean %s?", meant)
	case where != "":
		p.Add(path, "unknown key; it belongs to %s", where)
	default:
		p.Add(path, "unknown key; valid keys are %s", strings.Join(names, ", "))
	}
}

// deepest is the maximum depth of objects, because types can be recursive.
const deepest = 8

// fields adds the names of the fields of a type and of the objects in it, by the paths of the
// objects: spec.rules[].sharing. The key of a map is *.
func fields(all map[string][]string, path string, t reflect.Type, depth int) {
	switch t.Kind() {
	case reflect.Pointer:
		fields(all, path, t.Elem(), depth)
	case reflect.Slice:
		fields(all, path+"[]", t.Elem(), depth)
	case reflect.Map:
		fields(all, Key(path, "*"), t.Elem(), depth)
	case reflect.Struct:
		for i := 0; i < t.NumField() && depth < deepest; i++ {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case !f.IsExported() || name == "-":
			case f.Anonymous && name == "":
				fields(all, path, f.Type, depth)
			default:
				name = cmp.Or(name, f.Name)
				all[path] = append(all[path], name)
				fields(all, Key(path, name), f.Type, depth+1)
			}
		}
	}
}

// keyOf returns a pattern for the paths of the keys of an object.
func keyOf(object string) *regexp.Regexp {
	pattern := strings.NewReplacer(`\[\]`, `\[[0-9]+\]`, `\*`, `.+`).Replace(regexp.QuoteMeta(object))
	if pattern != "" {
		pattern += `\.`
	}
	return regexp.MustCompile("^" + pattern + "(.+)$")
}

// objectsWith returns the objects nearest to the root that have a key, except for metadata, which has
// too many keys.
func objectsWith(key string, all map[string][]string) string {
	var found []string
	depth := func(path string) int { return strings.Count(path, ".") }
	for _, object := range slices.Sorted(maps.Keys(all)) {
		if object == "" || strings.HasPrefix(object, "metadata") || !slices.Contains(all[object], key) {
			continue
		}
		if len(found) > 0 && depth(object) < depth(found[0]) {
			found = nil
		}
		if len(found) == 0 || depth(object) == depth(found[0]) {
			found = append(found, object)
		}
	}
	return strings.Join(found, " or ")
}

// DidYouMean ends a sentence about a name that does not exist: with a question for the name that was
// probably meant, or with a full stop.
func DidYouMean(name string, names []string) string {
	// What many names have in common does not make them alike: a domain at the end, or before a slash.
	before, _, qualified := strings.Cut(name, "/")
	_, domain, _ := strings.Cut(before, ".")
	stem := func(s string) string {
		if qualified {
			return strings.TrimPrefix(s, before+"/")
		}
		return strings.TrimSuffix(s, "."+domain)
	}
	byStem := map[string]string{}
	for _, n := range names {
		byStem[stem(n)] = n
	}
	if meant := byStem[near(stem(name), slices.Sorted(maps.Keys(byStem)))]; meant != "" {
		return "; did you mean " + meant + "?"
	}
	return "."
}

// longestKey is the maximum length of keys for near, whose time grows quadratically.
const longestKey = 64

// near returns the name that was probably meant by a key, or "". It differs from the key only in case, or
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
