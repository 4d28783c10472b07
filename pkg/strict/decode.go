package strict

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Text is a document of a file.
type Text struct {
	// File names it in errors.
	File string
	Data []byte
	// Before is the number of lines of the file before the document. It is negative if the lines of
	// the document are not lines of the file.
	Before int
	// AnyCase ignores the case of keys. Values of keys in another case are not checked for unknown
	// keys.
	AnyCase bool
}

// Decode decodes YAML or JSON into a struct with JSON tags. Errors contain the name of the file. If it
// fails, into is unchanged.
func Decode(file string, data []byte, into any) error {
	_, err := Text{File: file, Data: data}.Decode(into)
	return err
}

// Decode decodes a document. It returns an empty collection for the caller's problems, which knows the
// lines of the file.
func (t Text) Decode(into any) (*Problems, error) {
	problems, err := t.scan()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	data, err := yaml.YAMLToJSON(t.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	target := reflect.TypeOf(into).Elem()
	fresh := reflect.New(target)
	unknown, err := json.UnmarshalStrict(data, fresh.Interface(), json.DisallowUnknownFields)
	if t.AnyCase && err == nil {
		fresh = reflect.New(target)
		err = stdjson.Unmarshal(data, fresh.Interface())
	}
	for _, e := range unknown {
		if field, ok := errors.AsType[json.FieldError](e); ok {
			problems.unknown(field.FieldPath(), target, t.AnyCase)
		}
	}
	if mistyped, ok := errors.AsType[*stdjson.UnmarshalTypeError](err); ok {
		problems.mistyped(mistyped, data)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	reflect.ValueOf(into).Elem().Set(fresh.Elem())
	return problems, nil
}

// scan reads the document for what is lost in JSON: duplicate keys, and lines.
func (t Text) scan() (*Problems, error) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(t.Data))
	var document, next yamlv3.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF) || err == nil && empty(&document):
		return nil, errors.New("it is empty")
	case err != nil:
		return nil, err
	case document.Content[0].Kind != yamlv3.MappingNode:
		return nil, errors.New("it must be an object: keys with values")
	}
	switch err := decoder.Decode(&next); {
	case err == nil && !empty(&next):
		return nil, errors.New("it has more than one document, separated by ---: keep one")
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	}
	problems := NewProblems(t.File)
	if t.Before >= 0 && bytes.Contains(bytes.TrimSpace(t.Data), []byte("\n")) {
		problems.lines = map[string]int{}
	}
	t.collect(problems, "", document.Content[0], t.Before+document.Content[0].Line)
	return problems, nil
}

func empty(document *yamlv3.Node) bool {
	return len(document.Content) == 0 || document.Content[0].Tag == "!!null"
}

// collect adds the lines of a node and its children, and the problems of duplicate keys. It does not
// follow aliases.
func (t Text) collect(problems *Problems, path string, n *yamlv3.Node, line int) {
	if problems.lines != nil {
		problems.lines[path] = line
	}
	switch n.Kind {
	case yamlv3.MappingNode:
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, same := n.Content[i].Value, n.Content[i].Value
			if t.AnyCase {
				same = strings.ToLower(key)
			}
			if seen[same] {
				problems.Add(Key(path, key), "duplicate key")
			}
			seen[same] = true
			t.collect(problems, Key(path, key), n.Content[i+1], t.Before+n.Content[i].Line)
		}
	case yamlv3.SequenceNode:
		for i, entry := range n.Content {
			t.collect(problems, Index(path, i), entry, t.Before+entry.Line)
		}
	}
}

// wanted describes the values of a type by its kind. All other kinds are whole numbers.
var wanted = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.Float32: "a number", reflect.Float64: "a number", reflect.String: "a string",
	reflect.Slice: "a list", reflect.Map: "an object", reflect.Struct: "an object",
}

// mistyped adds the problem of the first value of the wrong type.
func (p *Problems) mistyped(err *stdjson.UnmarshalTypeError, data []byte) {
	path, value := valueAt(stdjson.NewDecoder(bytes.NewReader(data)), "", err.Offset)
	shown, _ := stdjson.Marshal(value)
	hint := ""
	switch {
	case value == stdjson.Delim('{'):
		shown = []byte("an object")
	case value == stdjson.Delim('['):
		shown = []byte("a list")
	case err.Type.Kind() == reflect.String:
		hint = ": put it in quotes"
	}
	p.Add(path, "must be %s, not %s%s", cmp.Or(wanted[err.Type.Kind()], "a whole number"), shown, hint)
}

// valueAt returns the value whose first token ends at an offset, and its path. It returns nil if the
// next value does not contain the offset.
func valueAt(in *stdjson.Decoder, path string, offset int64) (string, stdjson.Token) {
	token, err := in.Token()
	if err != nil || in.InputOffset() >= offset {
		return path, token
	}
	if opening, ok := token.(stdjson.Delim); ok {
		for i := 0; in.More(); i++ {
			below := Index(path, i)
			if opening == '{' {
				key, _ := in.Token()
				below = Key(path, fmt.Sprint(key))
			}
			if found, value := valueAt(in, below, offset); value != nil {
				return found, value
			}
		}
		_, _ = in.Token() // the end of it
	}
	return "", nil
}
