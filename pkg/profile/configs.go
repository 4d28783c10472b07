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

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/profile/thirdparty"
)

// largestFile is the largest size of a file, that of a ConfigMap.
const largestFile = 1 << 20

// yamlFile is the optional extension of files.
const yamlFile = ".yaml"

// Source reads the configuration of NVIDIA's device plugin for a node, from files named NAME or
// NAME.yaml. One goroutine uses it.
type Source struct {
	files files
	// unlabelled: nodes without the label have a configuration, too: fallback, if it is set.
	unlabelled bool
	fallback   string

	// The file that was last parsed, if one was, and the result.
	parsed   bool
	read     file
	settings *Profile
	err      error
}

// files are the files of configurations.
type files interface {
	// names lists the configurations.
	names() ([]string, error)
	// open reads a configuration; fs.ErrNotExist: there is none of this name.
	open(name string) (*file, error)
}

// NewSource reads from a folder, a mounted ConfigMap. It may be missing; empty: there is none.
func NewSource(dir string) *Source { return &Source{files: folder(dir)} }

// NewConfigMapSource reads from a ConfigMap (namespace/name). data returns its content, or why
// it is not known.
func NewConfigMapSource(name string, data func() (map[string]string, error)) *Source {
	return &Source{files: configMap{name, data}}
}

// ForUnlabelled lets nodes without the label have a configuration, too: see deviceplugin.Choose.
// The name is that of the default, and can be empty.
func (s *Source) ForUnlabelled(name string) { s.unlabelled, s.fallback = true, name }

// file is the file of a configuration. The zero value is no file.
type file struct {
	name, path string
	data       []byte
}

func (f *file) equal(g *file) bool {
	return f.path == g.path && f.name == g.name && bytes.Equal(f.data, g.data)
}

// Read returns the configuration for a node with these labels, nil if there is none. While
// nothing changes, it returns the same pointer and error. An error names the file or the label;
// the previous configuration should stay in force.
func (s *Source) Read(labels map[string]string) (*Profile, error) {
	f, err := s.choose(labels)
	if err != nil {
		if s.err == nil || s.err.Error() != err.Error() {
			s.err = err
		}
		s.parsed, s.settings = false, nil
		return nil, s.err
	}
	if s.parsed && s.read.equal(f) {
		return s.settings, s.err
	}
	s.parsed, s.read, s.settings, s.err = true, *f, nil, nil
	if f.path != "" {
		s.settings, s.err = ParseDevicePlugin(f.path, f.name, f.data)
	}
	return s.settings, s.err
}

// choose finds the file that the node's label names, or that is for nodes without the label.
func (s *Source) choose(labels map[string]string) (*file, error) {
	label := labels[names.LabelDevicePluginConfig]
	if label == "" && !s.unlabelled {
		return &file{}, nil
	}
	if named := cmp.Or(label, s.fallback); named != "" {
		// The name can also be that of the file, with .yaml.
		if found, err := s.files.open(named); !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
	}
	all, err := s.files.names()
	if err != nil || len(all) == 0 {
		// The label can be left over from a device plugin. Without any configuration it is
		// ignored.
		return &file{}, err
	}
	name, err := thirdparty.ChooseDevicePluginConfig(label, s.fallback, all)
	if err != nil || name == "" {
		return &file{}, err
	}
	return s.files.open(name)
}

// configMap has files as the keys of a ConfigMap.
type configMap struct {
	name string
	data func() (map[string]string, error)
}

func (c configMap) open(name string) (*file, error) {
	data, err := c.data()
	if err != nil {
		return nil, err
	}
	for _, key := range []string{name, name + yamlFile} {
		if text, ok := data[key]; ok {
			return &file{name: name, path: "ConfigMap " + c.name + " key " + key, data: []byte(text)}, nil
		}
	}
	return nil, fs.ErrNotExist
}

func (c configMap) names() ([]string, error) {
	data, err := c.data()
	if err != nil {
		return nil, err
	}
	found := make([]string, 0, len(data))
	for key := range data {
		found = append(found, strings.TrimSuffix(key, yamlFile))
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// folder has files in a mounted ConfigMap.
type folder string

func (f folder) open(name string) (*file, error) {
	if f == "" || filepath.Base(name) != name || strings.HasPrefix(name, ".") {
		return nil, fs.ErrNotExist
	}
	path := filepath.Join(string(f), name)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		path += yamlFile
		data, err = readFile(path)
	}
	if err != nil {
		return nil, err
	}
	return &file{name: name, path: path, data: data}, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, largestFile+1))
	if err == nil && len(data) > largestFile {
		err = fmt.Errorf("%s: has more than %d bytes", path, largestFile)
	}
	return data, err
}

// names leaves out names with a leading dot, which belong to the kubelet.
func (f folder) names() ([]string, error) {
	if f == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(f))
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
