package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Spec says what a machine is made of. Its folder is the only place of the
// host that it writes to.
type Spec struct {
	// Name is the host name.
	Name string
	// Dir is the machine's folder on the host.
	Dir string

	// Overlays are folders of the host that the machine sees with a writable
	// layer in memory above them, so that folders can be made in them.
	Overlays []string
	// Tmpfs are folders that the machine sees empty, in memory.
	Tmpfs []string
	// Binds are folders and files of the host that the machine sees elsewhere.
	Binds []Bind
	// Keep are folders of the host that the machine must see where they are,
	// even below Overlays and Tmpfs.
	Keep []string
	// Files are files that exist on the host, mostly in /proc, and that the
	// machine sees with other content. What the host lacks is left out.
	Files map[string]string

	// Addresses are the machine's own, in CIDR notation, apart from those of
	// its links.
	Addresses []string
	// Forward are TCP addresses on which the machine listens to pass every
	// connection on to ForwardTo, as it does with the listener that Start is
	// given.
	Forward   []string
	ForwardTo string
}

// Bind is a folder or file of the host that a machine sees at Target.
type Bind struct {
	Source, Target string
	ReadOnly       bool
}

const specFile = "machine.json"

func (s Spec) write() error {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return fmt.Errorf("machine %s: %w", s.Name, err)
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("machine %s: %w", s.Name, err)
	}
	return os.WriteFile(filepath.Join(s.Dir, specFile), content, 0o644)
}

func readSpec(dir string) (Spec, error) {
	var spec Spec
	content, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return spec, err
	}
	if err := json.Unmarshal(content, &spec); err != nil {
		return spec, fmt.Errorf("%s in %s: %w", specFile, dir, err)
	}
	return spec, nil
}
