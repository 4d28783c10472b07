package profile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/profile/deviceplugin"
)

// largestFile is the largest size of a file, that of a ConfigMap.
const largestFile = 1 << 20

// yamlFile is the optional extension of files.
const yamlFile = ".yaml"

// Source reads the configuration of NVIDIA's device plugin for a node from a folder, a
// mounted ConfigMap with one file for each (NAME, or NAME.yaml). The folder may be
// missing. One goroutine uses it.
type Source struct {
	dir string

	// The file that was last read, and the result.
	read     file
	settings *Profile
	err      error
}

// NewSource reads from a folder, empty if there is none.
func NewSource(dir string) *Source { return &Source{dir: dir} }

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
		s.read, s.settings = file{}, nil
		return nil, s.err
	}
	if (s.settings != nil || s.err != nil) && s.read.equal(f) {
		return s.settings, s.err
	}
	s.read, s.settings, s.err = *f, nil, nil
	if f.path != "" {
		s.settings, s.err = ParseDevicePlugin(f.path, f.name, f.data)
	}
	return s.settings, s.err
}

// choose finds the file that the node's label names.
func (s *Source) choose(labels map[string]string) (*file, error) {
	name := labels[deviceplugin.Label]
	if name == "" {
		return &file{}, nil
	}
	found, err := open(s.dir, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	// The label can be left over from a device plugin. Without any configuration it is
	// ignored.
	all, err := names(s.dir)
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("the node's label %s is %q, but no device plugin configuration has that name; existing ones: %s",
			deviceplugin.Label, name, strings.Join(all, ", "))
	}
	return &file{}, err
}

// open reads the file of a configuration.
func open(dir, name string) (*file, error) {
	if dir == "" || filepath.Base(name) != name || strings.HasPrefix(name, ".") {
		return nil, fs.ErrNotExist
	}
	path := filepath.Join(dir, name)
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

// names lists the configurations in a folder. In a mounted ConfigMap, names with a leading dot
// belong to the kubelet.
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
