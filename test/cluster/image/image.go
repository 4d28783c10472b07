package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// DefaultPath is the PATH of an image that sets none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// epoch is the timestamp of everything in an image, so that equal content
// gives equal bytes.
var epoch = time.Unix(0, 0).UTC()

// Spec says what an image consists of.
type Spec struct {
	// Tags are the names of the image, complete or as Docker abbreviates them
	// ("busybox:1.35" is "docker.io/library/busybox:1.35").
	Tags []string
	// Entrypoint and Command are what a container runs.
	Entrypoint, Command []string
	// Env is the environment as KEY=value. PATH is added where it is missing.
	Env []string
	// User is what a container runs as, root if empty.
	User string
	// WorkingDir is where a container starts.
	WorkingDir string
	// Entries are the files, folders and links of the only layer.
	Entries []Entry
}

// Write writes the image archive to file: to a temporary file first, so that
// nobody finds half an archive.
func Write(file string, spec Spec) error {
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	defer os.Remove(temp.Name())
	err = writeArchive(temp, spec)
	if err := errors.Join(err, temp.Chmod(0o644), temp.Close()); err != nil {
		return fmt.Errorf("write image archive %s: %w", file, err)
	}
	if err := os.Rename(temp.Name(), file); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return nil
}

func withPath(env []string) []string {
	for _, variable := range env {
		if strings.HasPrefix(variable, "PATH=") {
			return env
		}
	}
	return append([]string{"PATH=" + DefaultPath}, env...)
}
