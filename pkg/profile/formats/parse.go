package formats

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/profile/converted"
	"github.com/tranche-dev/tranche/pkg/profile/dcm"
	"github.com/tranche-dev/tranche/pkg/profile/deviceplugin"
	"github.com/tranche-dev/tranche/pkg/profile/migparted"
	"github.com/tranche-dev/tranche/pkg/profile/strict"
)

// Format is a project whose files can be read.
type Format string

// The formats.
const (
	MIGParted           Format = "mig-parted"
	DevicePlugin        Format = "device plugin"
	DeviceConfigManager Format = "device config manager"
	Kaiwo               Format = "Kaiwo"
	Nos                 Format = "nos"
)

// Profile is a configuration of a document as a PartitionProfile.
type Profile = converted.Profile

// Document is a file, a key of a ConfigMap or an object.
type Document struct {
	Format Format
	// Name says where it is: the file, and the object or key in it.
	Name string
	// Profiles are its configurations.
	Profiles []Profile
	// Notes say what of the document has no counterpart, for people.
	Notes []string
}

// Parse converts a text whose format is known. key is the key of the ConfigMap, or the name of the
// file without its ending: a configuration of the device plugin is named so. The error says why
// nothing of it can be used.
func Parse(format Format, key string, text strict.Text) (Document, error) {
	d := Document{Format: format, Name: text.File}
	var err error
	switch format {
	case MIGParted:
		if note := notCarriedOver(text.Data); note != "" {
			d.Notes = []string{note}
			break
		}
		d.Profiles, err = migparted.Read(text)
	case DeviceConfigManager:
		d.Profiles, d.Notes, err = dcm.Read(text)
	case DevicePlugin:
		p := Profile{Original: key}
		if p.Spec, p.Notes, p.Err = deviceplugin.ReadText(text); p.Err != nil {
			p = p.Fail(p.Err)
		}
		d.Profiles = []Profile{p}
	default:
		err = fmt.Errorf("%s: files of the format %q cannot be read", text.File, format)
	}
	if err != nil {
		return Document{}, err
	}
	finish(d.Profiles)
	return d, nil
}

// fileKeys are the keys under which ConfigMaps have the file of a format. The device plugin's have a
// file under each key.
var fileKeys = map[Format]string{MIGParted: "config.yaml", DeviceConfigManager: "config.json"}

// ParseConfigMap converts the files of a format in a ConfigMap. Its name is for errors.
func ParseConfigMap(format Format, name string, data map[string]string) (Document, error) {
	text := func(key string) strict.Text {
		return strict.Text{File: "ConfigMap " + name + ", key " + key, Data: []byte(data[key])}
	}
	if format == DevicePlugin {
		d := Document{Format: format, Name: "ConfigMap " + name}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			file, err := Parse(format, key, text(key))
			if err != nil {
				return Document{}, err
			}
			d.Profiles = append(d.Profiles, file.Profiles...)
		}
		return d, nil
	}
	key := fileKeys[format]
	if _, has := data[key]; !has && len(data) == 1 {
		key = slices.Collect(maps.Keys(data))[0]
	}
	if _, has := data[key]; !has {
		return Document{}, fmt.Errorf("ConfigMap %s: has no key %s, the file of %s", name, key, format)
	}
	return Parse(format, key, text(key))
}

// finish names PartitionProfiles and checks them.
func finish(profiles []Profile) {
	for i := range profiles {
		p := &profiles[i]
		if p.Err != nil {
			p.Name, _ = ObjectName(p.Original)
			continue
		}
		var err error
		if p.Name == "" {
			p.Name, err = ObjectName(p.Original)
		}
		if err == nil {
			_, err = profile.FromRules(p.Name, p.Spec.Rules)
		}
		if err != nil {
			*p = p.Fail(err)
		}
	}
}
