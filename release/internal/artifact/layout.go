package artifact

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tranche-dev/tranche/release/image"
)

// Index is one image for several architectures.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range images {
		config, err := i.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: i, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture}},
		})
	}
	return index, nil
}

// WriteLayout writes an image of several architectures as an OCI layout in a tar
// archive, which `ctr images import` and skopeo read.
func WriteLayout(w io.Writer, index v1.ImageIndex, tag name.Tag) error {
	dir, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = files.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          tag.String(),
		"org.opencontainers.image.ref.name": tag.TagStr(),
	}))
	if err != nil {
		return err
	}
	var entries []image.Entry
	err = filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		entries = append(entries, image.Entry{Path: file[len(dir):], Source: file, Mode: 0o644})
		return nil
	})
	if err != nil {
		return err
	}
	return image.WriteTar(w, entries)
}

// ReadLayout reads what WriteLayout has written. The files are unpacked to dir, where
// they must stay while the index is used.
func ReadLayout(archive, dir string) (v1.ImageIndex, error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	root, err := os.OpenRoot(dir) // no name in the archive leads out of it
	if err != nil {
		return nil, err
	}
	defer root.Close()
	err = eachFile(file, func(name string, content io.Reader) error {
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		out, err := root.Create(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, content)
		return errors.Join(err, out.Close())
	})
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", archive, err)
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s contains %d images, not one", archive, len(manifest.Manifests))
	}
	return all.ImageIndex(manifest.Manifests[0].Digest)
}

// eachFile calls f for each file of a tar archive.
func eachFile(archive io.Reader, f func(name string, content io.Reader) error) error {
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := f(header.Name, files); err != nil {
			return err
		}
	}
}
