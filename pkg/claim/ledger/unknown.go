package ledger

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// fields are the fields of a JSON object.
type fields map[string]json.RawMessage

// recordFields and deviceFields are the fields that this version knows.
var (
	recordFields = namesOf(reflect.TypeFor[Record]())
	deviceFields = namesOf(reflect.TypeFor[Device]())
)

func namesOf(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// readUnknown keeps the fields of a record and of its devices that this version does not know.
func (r *Record) readUnknown(data []byte) error {
	var record fields
	if err := json.Unmarshal(data, &record); err != nil {
		return err
	}
	var devices []fields
	if len(record["devices"]) > 0 {
		if err := json.Unmarshal(record["devices"], &devices); err != nil {
			return err
		}
	}
	r.unknown = record.without(recordFields)
	for i, d := range devices {
		r.Devices[i].unknown = d.without(deviceFields)
	}
	return nil
}

// without returns the fields that are not known; nil if there are none.
func (f fields) without(known []string) fields {
	var left fields
	for name, value := range f {
		// As encoding/json finds a field for a name.
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			if left == nil {
				left = fields{}
			}
			left[name] = value
		}
	}
	return left
}

func (r Record) hasUnknown() bool {
	if len(r.unknown) > 0 {
		return true
	}
	for _, d := range r.Devices {
		if len(d.unknown) > 0 {
			return true
		}
	}
	return false
}

// writeUnknown adds the fields that this version does not know to an encoded record.
func (r Record) writeUnknown(data []byte) ([]byte, error) {
	if !r.hasUnknown() {
		return data, nil
	}
	var record fields
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, err
	}
	var devices []fields
	if err := json.Unmarshal(record["devices"], &devices); err != nil {
		return nil, err
	}
	for i, d := range r.Devices {
		maps.Copy(devices[i], d.unknown)
	}
	maps.Copy(record, r.unknown)
	var err error
	if record["devices"], err = json.Marshal(devices); err != nil {
		return nil, err
	}
	return json.Marshal(record)
}
