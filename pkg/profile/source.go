package profile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/profile/deviceplugin"
)

// largestFile is how large a file can be: no ConfigMap holds more.
const largestFile = 1 << 20

// yamlFile is how the names of files with PartitionProfiles end.
const yamlFile = ".yaml"

// Source reads the settings of a node from two folders, each of them a mounted
// ConfigMap: one file for each PartitionProfile (<name>.yaml), and one for each
// configuration of NVIDIA's device plugin (<name>, or <name>.yaml). Either folder
// may be missing. One goroutine uses it.
type Source struct {
	profiles, devicePlugin string

	// What was read last, and what came of it.
	read     chosen
	settings *Settings
	err      error
}

// NewSource reads from two folders; an empty name stands for one that is missing.
func NewSource(profilesDir, devicePluginConfigsDir string) *Source {
	return &Source{profiles: profilesDir, devicePlugin: devicePluginConfigsDir}
}

// chosen is the file that holds for a node.
type chosen struct {
	// name is that of the profile or configuration.
	name, file string
	data       []byte
	parse      func(file, name string, data []byte) (*Settings, error)
}

func (c *chosen) equal(d *chosen) bool {
	return c.file == d.file && c.name == d.name && bytes.Equal(c.data, d.data)
}

// Read returns what holds for a node with these labels. As long as nothing has
// changed it is the same as before, pointer and error. An error names the file or
// the label; what held before should hold on.
func (s *Source) Read(labels map[string]string) (*Settings, error) {
	c, err := s.choose(labels)
	if err != nil {
		if s.err == nil || s.err.Error() != err.Error() {
			s.err = err
		}
		s.read, s.settings = chosen{}, nil
		return nil, s.err
	}
	if (s.settings != nil || s.err != nil) && s.read.equal(c) {
		return s.settings, s.err
	}
	s.read, s.settings, s.err = *c, Unset(), nil
	if c.file != "" {
		s.settings, s.err = c.parse(c.file, c.name, c.data)
	}
	if s.err != nil {
		s.settings = nil
	}
	return s.settings, s.err
}

// choose finds the file that holds for a node, none where nobody has said anything.
func (s *Source) choose(labels map[string]string) (*chosen, error) {
	if name := labels[v1alpha1.ProfileLabel]; name != "" {
		c, err := s.profile(name)
		if errors.Is(err, fs.ErrNotExist) {
			err = missing(v1alpha1.ProfileLabel, name, "PartitionProfile", s.profiles)
		}
		return c, err
	}
	if name := labels[deviceplugin.Label]; name != "" {
		// Nodes keep the label of a device plugin that is gone. Without files of its
		// kind it is not meant for us.
		if there, err := names(s.devicePlugin); err != nil || len(there) > 0 {
			return s.config(name)
		}
	}
	c, err := s.profile(v1alpha1.DefaultProfile)
	if errors.Is(err, fs.ErrNotExist) {
		return &chosen{}, nil
	}
	return c, err
}

func (s *Source) profile(name string) (*chosen, error) {
	return open(s.profiles, name, func(file, name string, data []byte) (*Settings, error) {
		parsed, err := Parse(file, data)
		if err == nil && parsed.Profile != profileOrigin(name) {
			err = fmt.Errorf("%s: metadata.name: must be %s, as the file is named", file, name)
		}
		return parsed, err
	}, yamlFile)
}

func (s *Source) config(name string) (*chosen, error) {
	c, err := open(s.devicePlugin, name, ParseDevicePlugin, "", yamlFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = missing(deviceplugin.Label, name, "configuration of the device plugin", s.devicePlugin)
	}
	return c, err
}

// open reads the file of a name that ends in one of the ways.
func open(dir, name string, parse func(file, name string, data []byte) (*Settings, error), ends ...string) (*chosen, error) {
	if dir == "" || filepath.Base(name) != name || strings.HasPrefix(name, ".") {
		return nil, fs.ErrNotExist
	}
	var err error
	for _, end := range ends {
		var data []byte
		file := filepath.Join(dir, name+end)
		if data, err = readFile(file); err == nil {
			return &chosen{name: name, file: file, data: data, parse: parse}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, err
}

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, largestFile+1))
	if err == nil && len(data) > largestFile {
		err = fmt.Errorf("%s: has more than %d bytes", file, largestFile)
	}
	return data, err
}

// missing says what there is where the file that a label names is not.
func missing(label, name, what, dir string) error {
	there, err := names(dir)
	if err != nil {
		return err
	}
	list := cmp.Or(strings.Join(there, ", "), "none")
	return fmt.Errorf("the node's label %s is %q: there is no %s of that name; there are: %s", label, name, what, list)
}

// names are those of the files in a folder. A mounted ConfigMap has links to them,
// and what begins with a dot is of the kubelet.
func names(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []string
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, ".") {
			found = append(found, strings.TrimSuffix(name, yamlFile))
		}
	}
	slices.Sort(found)
	return slices.Compact(found), err
}
