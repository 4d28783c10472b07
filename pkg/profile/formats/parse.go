package formats

import (
	"fmt"

	"github.com/tranche-dev/tranche/pkg/claimtemplate/convert"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/strict"
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
	// NVIDIADRA is the format of claims for NVIDIA's DRA driver.
	NVIDIADRA Format = "NVIDIA's DRA driver"
	// Pods is the format of objects with pods.
	Pods Format = "pods"
)

// Document is a file, a key of a ConfigMap or an object.
type Document struct {
	Format Format
	// Name says where it is: the file, and the object or key in it.
	Name string
	// Profiles are its configurations.
	Profiles []Profile
	// Object is an object with pods, or one for a DRA driver, converted.
	Object *convert.Object
	// Notes say what of the document has no counterpart, for people.
	Notes []string

	// node is a Node of which one label names the PartitionProfile partitioned, and another the
	// configuration shared of the device plugin. Empty: there is none.
	node, partitioned, shared string
}

// parse converts a text whose format is known. key is the key of the ConfigMap, or the name of the
// file without its ending: a configuration of the device plugin is named so. The error says why
// nothing of it can be used.
func parse(format Format, key string, text strict.Text) (Document, error) {
	d := Document{Format: format, Name: text.File}
	var err error
	switch format {
	case MIGParted:
		if note := notCarriedOver(text.Data); note != "" {
			d.Notes = []string{note}
			break
		}
		d.Profiles, err = ReadMIGParted(text)
	case DeviceConfigManager:
		d.Profiles, d.Notes, err = ReadDeviceConfigManager(text)
	case DevicePlugin:
		d.Profiles = []Profile{devicePlugin(key, text)}
	default:
		err = fmt.Errorf("%s: files of the format %q cannot be read", text.File, format)
	}
	if err != nil {
		return Document{}, err
	}
	finish(d.Profiles)
	return d, nil
}

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

// ReadDevicePlugin converts a configuration of NVIDIA's device plugin. file is for errors.
func ReadDevicePlugin(file, name string, data []byte) Profile {
	all := []Profile{devicePlugin(name, strict.Text{File: file, Data: data})}
	finish(all)
	return all[0]
}

func devicePlugin(name string, text strict.Text) Profile {
	p := Profile{Original: name}
	p.Spec, p.Notes, p.Err = readDevicePlugin(text)
	return p
}
