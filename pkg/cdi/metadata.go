package cdi

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// MetadataFiles are the file operations of the kubeletplugin helper's device
// metadata. They remember which CDI files were written for a claim: the helper
// would otherwise look through the whole folder at each release, which takes the
// longer the more claims the node has.
type MetadataFiles struct {
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
	return kubeletplugin.MetadataFileOperations{WriteFile: m.write, Glob: m.glob}
}

func (m *MetadataFiles) write(name string, data []byte, mode os.FileMode) error {
	if err := renameio.WriteFile(name, data, mode, renameio.WithTempDir(filepath.Dir(name)), renameio.IgnoreUmask()); err != nil {
		return err
	}
	end := strings.LastIndex(name, metadataSeparator)
	if end < len(filepath.Dir(name)) {
		return nil // the metadata itself, which the helper finds without looking
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.written == nil {
		m.written = map[string][]string{}
	}
	m.written[name[:end]] = append(m.written[name[:end]], name)
	return nil
}

// glob answers from memory for claims that this process has prepared. For those
// of an earlier one it looks.
func (m *MetadataFiles) glob(pattern string) ([]string, error) {
	beginning := strings.TrimSuffix(pattern, metadataPattern)
	m.mu.Lock()
	names := m.written[beginning]
	delete(m.written, beginning)
	m.mu.Unlock()
	if names == nil {
		return filepath.Glob(pattern)
	}
	return names, nil
}
