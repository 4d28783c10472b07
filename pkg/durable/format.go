package durable

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Format is the version of a kind of file.
type Format struct {
	// Version is the version that is written, and the highest minReader that can be used.
	Version int
	// MinReader is the oldest version that can use what is written.
	MinReader int
}

type header struct {
	Version   int `json:"version"`
	MinReader int `json:"minReader"`
}

// NewerError says that only a newer version of the program can use a file.
type NewerError struct {
	// Version wrote the file, MinReader is the oldest version that can use it.
	Version, MinReader int
	// Reads is the highest version that this program can use.
	Reads int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("it has version %d and needs a plugin that reads version %d, this one reads %d: run the newer version of Tranche on this node again",
		e.Version, e.MinReader, e.Reads)
}

// Decode decodes a file into a struct, and returns the keys that the struct does not have. It fails
// with a *NewerError if the file needs a newer version.
func (f Format) Decode(data []byte, into any) (Unknown, error) {
	var h header
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, fmt.Errorf("no valid JSON: %w", err)
	}
	minReader := cmp.Or(h.MinReader, h.Version)
	switch {
	case h.Version < 1 || minReader < 1:
		return nil, fmt.Errorf("version is %d, minReader %d: neither can be less than 1", h.Version, h.MinReader)
	case minReader > f.Version:
		return nil, &NewerError{Version: h.Version, MinReader: minReader, Reads: f.Version}
	}
	unknown, err := Unmarshal(data, into)
	return unknown.without(keysOf(reflect.TypeFor[header]())), err
}

// Encode encodes a struct as a file, with the keys of a newer version that Decode returned.
func (f Format) Encode(value any, unknown Unknown) ([]byte, error) {
	data, err := Marshal(value, unknown)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(header(f))
	if err != nil {
		return nil, err
	}
	body, isObject := bytes.CutPrefix(data, []byte("{"))
	switch {
	case !isObject:
		return nil, errors.New("a file must be a JSON object")
	case string(body) == "}":
		return head, nil
	}
	return slices.Concat(head[:len(head)-1], []byte(","), body), nil
}

// Unknown are the keys of a JSON object that this version does not know, which a newer version wrote.
//
// A struct that is an entry of a file keeps them in a field, with the methods
//
//	func (e *entry) UnmarshalJSON(data []byte) (err error) {
//		type plain entry
//		e.unknown, err = durable.Unmarshal(data, (*plain)(e))
//		return err
//	}
//
//	func (e entry) MarshalJSON() ([]byte, error) {
//		type plain entry
//		return durable.Marshal(plain(e), e.unknown)
//	}
type Unknown map[string]json.RawMessage

// Unmarshal decodes a JSON object into a struct, and returns the keys that the struct does not have; nil
// if there are none.
func Unmarshal(data []byte, into any) (Unknown, error) {
	if err := json.Unmarshal(data, into); err != nil {
		return nil, err
	}
	var all Unknown
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	return all.without(keysOf(reflect.TypeOf(into).Elem())), nil
}

// Marshal encodes a struct as a JSON object with the keys that Unmarshal returned.
func Marshal(value any, unknown Unknown) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil || len(unknown) == 0 {
		return data, err
	}
	all := Unknown{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for key, value := range unknown {
		all[key] = value
	}
	return json.Marshal(all)
}

// without returns the keys that are not known; nil if there are none.
func (u Unknown) without(known []string) Unknown {
	var left Unknown
	for key, value := range u {
		// As encoding/json finds a field for a key.
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) {
			if left == nil {
				left = Unknown{}
			}
			left[key] = value
		}
	}
	return left
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for _, f := range reflect.VisibleFields(t) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && key != "-" && (key != "" || !f.Anonymous) {
			keys = append(keys, cmp.Or(key, f.Name))
		}
	}
	return keys
}
