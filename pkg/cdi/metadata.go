package cdi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	"k8s.io/apimachinery/pkg/types"
)

// MetadataFiles implements the file operations for the kubeletplugin helper's device metadata.
// It remembers the CDI files of each claim. Otherwise the helper would search the whole folder
// at each release, which takes longer the more claims a node has. It also refuses files of a claim
// that was released meanwhile: the helper writes after Prepare, and if the kubelet has timed out,
// Unprepare may come first.
type MetadataFiles struct {
	// Held reports whether a claim still has its devices.
	Held func(claim types.UID) bool

	// writing is read-locked while a file is written. It is locked while a folder is removed,
	// which would fail if the folder got a file meanwhile, and while a release looks for files.
	writing sync.RWMutex
	// mu protects written.
	mu sync.Mutex
	// written has the files by the beginning of their names.
	written map[string][]string
}

// The helper's names of these files are <beginning>_<request>.json, and it looks
// for <beginning>_*.json.
const (
	metadataSeparator = "_"
	metadataPattern   = "_*.json"
)

// WriteFile writes a file, whose folder it makes, atomically. It refuses a file of a claim that was
// released.
func (m *MetadataFiles) WriteFile(name string, data []byte, mode os.FileMode) error {
	m.writing.RLock()
	defer m.writing.RUnlock()
	claim, isOfClaim := MetadataClaim(name) // or the metadata file itself, whose path the helper knows
	// A release deletes the record first, and then the remembered files. So either it finds
	// this file, or Held is false by now.
	if isOfClaim && !m.Held(claim) {
		return fmt.Errorf("claim %s was released before its metadata was written", claim)
	}
	if err := os.MkdirAll(filepath.Dir(name), folderMode); err != nil {
		return err
	}
	if err := renameio.WriteFile(name, data, mode, renameio.WithTempDir(filepath.Dir(name)), renameio.IgnoreUmask()); err != nil {
		return err
	}
	if isOfClaim {
		m.remember(name)
	}
	return nil
}

// RemoveAll removes a folder. It waits until no file is being written.
func (m *MetadataFiles) RemoveAll(path string) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	return os.RemoveAll(path)
}

// MetadataClaim returns the claim of a CDI file for metadata, which is named
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

// beginning returns the part of a file's name that the helper knows at a release.
func beginning(name string) string { return name[:strings.LastIndex(name, metadataSeparator)] }

// Glob returns the files of a claim. It answers from memory for claims that this process has prepared,
// and otherwise reads the folder.
func (m *MetadataFiles) Glob(pattern string) ([]string, error) {
	of := strings.TrimSuffix(pattern, metadataPattern)
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	names := m.written[of]
	delete(m.written, of)
	m.mu.Unlock()
	if names == nil {
		return filepath.Glob(pattern)
	}
	return names, nil
}
