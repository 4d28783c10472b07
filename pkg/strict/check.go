package strict

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
)

// checker compares a document with the type that it is decoded into.
type checker struct {
	problems *Problems
	root     reflect.Type
	document yamlv2.MapSlice
	// anyCase accepts keys in another case than that of the fields.
	anyCase bool
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// judgesItself tells whether a type decodes and checks its values itself.
func judgesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler)
}

func (c *checker) value(path string, value any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if judgesItself(t) {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		if o, ok := object(c, path, value); ok {
			c.fields(path, o, t)
		}
	case reflect.Map:
		if o, ok := object(c, path, value); ok {
			c.keys(path, o, func(key string, value any) { c.value(Key(path, key), value, t.Elem()) })
		}
	case reflect.Slice, reflect.Array:
		c.list(path, value, t.Elem())
	case reflect.Interface:
		c.anything(path, value)
	default:
		c.scalar(path, value, t)
	}
}

// object tells whether the value is an object. A missing value counts as an empty object.
func object(c *checker, path string, value any) (yamlv2.MapSlice, bool) {
	o, ok := value.(yamlv2.MapSlice)
	if !ok && value != nil {
		c.problems.Add(path, "must be an object, not %s", describe(value))
	}
	return o, ok
}

// keys visits the keys of an object once each, and refuses duplicates.
func (c *checker) keys(path string, o yamlv2.MapSlice, each func(key string, value any)) {
	seen := map[string]bool{}
	for _, item := range o {
		key := fmt.Sprint(item.Key)
		if seen[key] {
			c.problems.Add(Key(path, key), "the key is there twice")
			continue
		}
		seen[key] = true
		each(key, item.Value)
	}
}

func (c *checker) fields(path string, o yamlv2.MapSlice, t reflect.Type) {
	known := fieldsOf(t)
	names := slices.Sorted(maps.Keys(known))
	seen := map[string]bool{}
	c.keys(path, o, func(key string, value any) {
		name := key
		if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(key, name) }); c.anyCase && i >= 0 {
			if name = names[i]; seen[name] {
				c.problems.Add(Key(path, key), "the key is there twice, in two cases")
				return
			}
			seen[name] = true
		}
		if field, ok := known[name]; ok {
			c.value(Key(path, key), value, field)
			return
		}
		switch meant, where := near(key, names), whereIs(key, c.root, c.document); {
		case meant != "":
			c.problems.Add(Key(path, key), "unknown key; did you mean %s?", meant)
		case where != "":
			c.problems.Add(Key(path, key), "unknown key; it belongs to %s", where)
		default:
			c.problems.Add(Key(path, key), "unknown key; there are %s", strings.Join(names, ", "))
		}
	})
}

func (c *checker) list(path string, value any, t reflect.Type) {
	list, ok := value.([]any)
	if !ok && value != nil {
		c.problems.Add(path, "must be a list, not %s", describe(value))
	}
	for i, entry := range list {
		c.value(Index(path, i), entry, t)
	}
}

// anything only checks for duplicate keys.
func (c *checker) anything(path string, value any) {
	switch value := value.(type) {
	case yamlv2.MapSlice:
		c.keys(path, value, func(key string, value any) { c.anything(Key(path, key), value) })
	case []any:
		for i, entry := range value {
			c.anything(Index(path, i), entry)
		}
	}
}

func (c *checker) scalar(path string, value any, t reflect.Type) {
	var wanted string
	var fits bool
	switch v := reflect.New(t).Elem(); {
	case t.Kind() == reflect.String:
		wanted = "a text"
		_, fits = value.(string)
	case t.Kind() == reflect.Bool:
		wanted = "true or false"
		_, fits = value.(bool)
	case v.CanInt() || v.CanUint():
		wanted = "a whole number"
		fits = holds(v, value)
	case v.CanFloat():
		wanted = "a number"
		n := reflect.ValueOf(value)
		fits = n.IsValid() && (n.CanInt() || n.CanUint() || n.CanFloat())
	default:
		wanted = "something else" // no type of ours has such a field
	}
	if !fits {
		hint := ""
		if isNumber := reflect.ValueOf(value); t.Kind() == reflect.String && isNumber.IsValid() && isNumber.Kind() < reflect.Array {
			hint = ": put it in quotes"
		}
		c.problems.Add(path, "must be %s, not %s%s", wanted, describe(value), hint)
	}
}

// holds tells whether an integer type can represent the value.
func holds(variable reflect.Value, value any) bool {
	n := reflect.ValueOf(value)
	switch {
	case !n.IsValid():
		return false
	case n.CanInt() && variable.CanInt():
		return !variable.OverflowInt(n.Int())
	case n.CanInt():
		return n.Int() >= 0 && !variable.OverflowUint(uint64(n.Int()))
	case n.CanUint() && variable.CanUint():
		return !variable.OverflowUint(n.Uint())
	}
	return false // what fits no int64 fits no variable of one
}

func describe(value any) string {
	switch value := value.(type) {
	case nil:
		return "nothing"
	case yamlv2.MapSlice:
		return "an object"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %q", shorten(value))
	case bool:
		return fmt.Sprint(value)
	}
	return fmt.Sprintf("the number %v", value)
}

func shorten(text string) string {
	const most = 40
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
