package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// DefaultPath is the PATH of every image.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// epoch is the timestamp of everything in an image, so that equal content
// gives equal bytes.
var epoch = time.Unix(0, 0).UTC()

// Spec says what an image consists of.
type Spec struct {
	// Architecture is that of the programs, such as arm64; empty: this machine's.
	Architecture string
	// Entrypoint and Command are what a container runs.
	Entrypoint, Command []string
	// User is what a container runs as, root if empty.
	User string
	// Labels describe the image.
	Labels map[string]string
	// Entries are the files, folders and links of the only layer.
	Entries []Entry
}

// Build returns the image. Its files are read when the image is written.
func Build(spec Spec) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(WriteTar(w, spec.Entries)) }()
		return r, nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	built, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layer)
	if err != nil {
		return nil, err
	}
	file, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created = spec.Architecture, "linux", v1.Time{Time: epoch}
	if file.Architecture == "" {
		file.Architecture = runtime.GOARCH
	}
	file.Config = v1.Config{
		User: spec.User, Env: []string{"PATH=" + DefaultPath}, Labels: spec.Labels,
		Entrypoint: spec.Entrypoint, Cmd: spec.Command,
	}
	if built, err = mutate.ConfigFile(built, file); err != nil {
		return nil, err
	}
	return mutate.ConfigMediaType(built, types.OCIConfigJSON), nil
}

// Write writes an image to file, as `docker save` does: `ctr images import`, `docker
// load` and `podman load` take it. Its tag is a complete name, such as
// docker.io/library/busybox:1.35.
func Write(file string, spec Spec, tag string) error {
	parsed, err := name.NewTag(tag, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("write image archive %s: name %q: %w", file, tag, err)
	}
	built, err := Build(spec)
	if err == nil {
		err = Atomically(file, func(w io.Writer) error { return tarball.Write(parsed, built, w) })
	}
	if err != nil {
		return fmt.Errorf("write image archive %s: %w", file, err)
	}
	return nil
}

// Atomically writes a file: to a temporary file first, so that nobody finds half of it.
func Atomically(file string, write func(io.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	err = write(temp)
	if err := errors.Join(err, temp.Chmod(0o644), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}
