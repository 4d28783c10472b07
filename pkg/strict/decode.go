package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"

	yamlv2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// Decode decodes YAML or JSON into a struct with JSON tags. The file's name is for errors. With an
// error, into is unchanged.
func Decode(file string, data []byte, into any) error {
	_, err := Text{File: file, Data: data}.Decode(into)
	return err
}

// Decode is Decode for a document. The problems are empty, for those that the caller finds: they
// get the lines of the file.
func (t Text) Decode(into any) (*Problems, error) {
	document, err := parse(t.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	target := reflect.TypeOf(into).Elem()
	problems := &Problems{file: t.File, lines: t.lines()}
	c := checker{problems: problems, root: target, document: document, anyCase: t.AnyCase}
	c.value("", document, target)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	// The content of a merge key (<<) is checked by the decoder only.
	fresh := reflect.New(target)
	if err := yaml.UnmarshalStrict(t.Data, fresh.Interface()); err != nil {
		return nil, fmt.Errorf("%s: %w", t.File, err)
	}
	reflect.ValueOf(into).Elem().Set(fresh.Elem())
	return problems, nil
}

// parse returns the only document, with duplicate keys. It is the parser that UnmarshalStrict uses.
func parse(data []byte) (yamlv2.MapSlice, error) {
	decoder := yamlv2.NewDecoder(bytes.NewReader(data))
	var document yamlv2.MapSlice
	err := decoder.Decode(&document)
	var notObject *yamlv2.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it is empty")
	case errors.As(err, &notObject):
		return nil, errors.New("it must be an object: keys with values")
	case err != nil:
		return nil, err
	case document == nil:
		return nil, errors.New("it is empty")
	}
	for {
		var next any
		switch err := decoder.Decode(&next); {
		case errors.Is(err, io.EOF):
			return document, nil
		case err != nil:
			return nil, err
		case next != nil:
			return nil, errors.New("it has more than one document, separated by ---: only the first would be read")
		}
	}
}
