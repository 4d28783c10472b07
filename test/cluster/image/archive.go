package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// manifest is the one file that the reader of an archive looks for by name.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// config is what OCI calls the image configuration.
type config struct {
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	Created      time.Time       `json:"created"`
	Config       containerConfig `json:"config"`
	RootFS       rootFS          `json:"rootfs"`
}

type containerConfig struct {
	User       string   `json:",omitempty"`
	Env        []string `json:",omitempty"`
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	WorkingDir string   `json:",omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// writeArchive writes the image in the format of `docker save`: an
// uncompressed layer, the configuration that names the layer by its digest,
// and the manifest. The layer goes through a temporary file, since its digest
// and size come before it.
func writeArchive(w io.Writer, spec Spec) error {
	tags, err := completeNames(spec.Tags)
	if err != nil {
		return err
	}
	layer, digest, err := tempLayer(spec.Entries)
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()

	settings, err := json.Marshal(config{
		Architecture: runtime.GOARCH,
		OS:           "linux",
		Created:      epoch,
		Config: containerConfig{
			User: spec.User, Env: withPath(spec.Env), WorkingDir: spec.WorkingDir,
			Entrypoint: spec.Entrypoint, Cmd: spec.Command,
		},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	names := manifest{Config: sha256Hex(settings) + ".json", RepoTags: tags, Layers: []string{digest + ".tar"}}
	index, err := json.Marshal([]manifest{names})
	if err != nil {
		return err
	}
	return writeMembers(w, names, index, settings, layer)
}

func writeMembers(w io.Writer, names manifest, index, settings []byte, layer *os.File) error {
	out := tar.NewWriter(w)
	for _, entry := range []Entry{
		{Path: "manifest.json", Data: index},
		{Path: names.Config, Data: settings},
		{Path: names.Layers[0], Source: layer.Name(), Mode: 0o644},
	} {
		if err := writeEntry(out, entry); err != nil {
			return fmt.Errorf("%s: %w", entry.Path, err)
		}
	}
	return out.Close()
}

// tempLayer writes the layer to a temporary file and returns it with its
// digest.
func tempLayer(entries []Entry) (*os.File, string, error) {
	file, err := os.CreateTemp("", "image-layer-*.tar")
	if err != nil {
		return nil, "", err
	}
	hash := sha256.New()
	if err := writeLayer(io.MultiWriter(file, hash), entries); err != nil {
		file.Close()
		os.Remove(file.Name())
		return nil, "", err
	}
	return file, hex.EncodeToString(hash.Sum(nil)), nil
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
