package cdi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// MetadataFiles are the file operations of the kubeletplugin helper's device
// metadata. They remember which CDI files were written for a claim: the helper
// would otherwise look through the whole folder at each release, which takes the
// longer the more claims the node has. And they keep no file of a claim that was
// released in the meantime: the helper writes after Prepare is over, and a kubelet
// that had lost its patience may have been served Unprepare before.
type MetadataFiles struct {
	// Held tells whether a claim has its devices still.
	Held func(claim types.UID) bool

	// folders keeps a folder from being removed while a file is written to it: the
	// removal would find the folder not empty in the end.
	folders sync.RWMutex
	// mu protects written.
	mu sync.Mutex
	// written has the files by what their names begin with.
	written map[string][]string
}

// The helper's names of these files are <beginning>_<request>.json, and it looks
// for <beginning>_*.json.
const (
	metadataSeparator = "_"
	metadataPattern   = "_*.json"
)

// Operations is what the helper takes.
func (m *MetadataFiles) Operations() kubeletplugin.MetadataFileOperations {
	return kubeletplugin.MetadataFileOperations{WriteFile: m.write, Glob: m.glob, RemoveAll: m.removeAll}
}

func (m *MetadataFiles) write(name string, data []byte, mode os.FileMode) error {
	if err := m.writeFile(name, data, mode); err != nil {
		return err
	}
	claim, ok := MetadataClaim(name)
	if !ok {
		return nil // the metadata itself, which the helper finds without looking
	}
	m.remember(name)
	// A release gives up the devices first and looks for files then. So either it
	// finds this one, or the claim has nothing any more by now.
	if m.Held(claim) {
		return nil
	}
	m.forget(name)
	return errors.Join(fmt.Errorf("claim %s was released before its metadata was there", claim), os.Remove(name))
}

func (m *MetadataFiles) writeFile(name string, data []byte, mode os.FileMode) error {
	m.folders.RLock()
	defer m.folders.RUnlock()
	if err := os.MkdirAll(filepath.Dir(name), folderMode); err != nil {
		return err
	}
	return renameio.WriteFile(name, data, mode, renameio.WithTempDir(filepath.Dir(name)), renameio.IgnoreUmask())
}

func (m *MetadataFiles) removeAll(path string) error {
	m.folders.Lock()
	defer m.folders.Unlock()
	return os.RemoveAll(path)
}

// MetadataClaim tells of which claim a CDI file of metadata is. Its name is
// <driver>_metadata_<claim's UID>_<request>.json.
func MetadataClaim(file string) (types.UID, bool) {
	parts := strings.Split(filepath.Base(file), metadataSeparator)
	if len(parts) != 4 || parts[1] != "metadata" {
		return "", false
	}
	return types.UID(parts[2]), true
}

func (m *MetadataFiles) remember(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.written == nil {
		m.written = map[string][]string{}
	}
	m.written[beginning(name)] = append(m.written[beginning(name)], name)
}

func (m *MetadataFiles) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.written, beginning(name))
}

// beginning is what the helper knows of a file's name at a release.
func beginning(name string) string { return name[:strings.LastIndex(name, metadataSeparator)] }

// glob answers from memory for claims that this process has prepared. For those
// of an earlier one it looks.
func (m *MetadataFiles) glob(pattern string) ([]string, error) {
	of := strings.TrimSuffix(pattern, metadataPattern)
	m.mu.Lock()
	names := m.written[of]
	delete(m.written, of)
	m.mu.Unlock()
	if names == nil {
		return filepath.Glob(pattern)
	}
	return names, nil
}
