package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/tranche-dev/tranche/release/image"
	"github.com/tranche-dev/tranche/release/internal/debian"
	"github.com/tranche-dev/tranche/release/internal/notices"
)

// programs are those in the product's image.
var programs = []string{
	"tranche-kubelet-plugin",
	"tranche-controller",
	"tranche-web",
	"tranche-hook",
	"nvidia-cdi-hook",
}

// product is the image of the programs in a folder, with Debian's C library: NVIDIA's
// driver library, which the plugin loads from the host, needs it.
func product(_ context.Context, folder, architecture string) (image.Spec, error) {
	spec := image.Spec{Architecture: architecture, Entrypoint: []string{"/usr/bin/tranche-kubelet-plugin"}}
	for _, program := range programs {
		file := filepath.Join(folder, program)
		if err := startsIn(file, architecture); err != nil {
			return image.Spec{}, err
		}
		spec.Entries = append(spec.Entries, image.Entry{Path: "/usr/bin/" + program, Source: file, Mode: 0o755})
	}
	return spec, nil
}

// The simulated driver's program, and the folder of its libraries.
const (
	simulatedDriver    = "simulated-driver"
	simulatedLibraries = "simulated-nvml"
)

// simulation is the image of the simulated driver. Its program is linked statically, and its
// libraries are loaded by the product and other programs.
func simulation(_ context.Context, folder, architecture string) (image.Spec, error) {
	spec := image.Spec{
		Architecture: architecture, Entrypoint: []string{"/usr/bin/" + simulatedDriver},
		Entries: []image.Entry{{Path: "/usr/bin/" + simulatedDriver, Source: filepath.Join(folder, simulatedDriver), Mode: 0o755}},
	}
	if err := startsIn(spec.Entries[0].Source, architecture); err != nil {
		return image.Spec{}, err
	}
	libraries := os.DirFS(filepath.Join(folder, simulatedLibraries))
	err := fs.WalkDir(libraries, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		library := filepath.Join(folder, simulatedLibraries, path)
		spec.Entries = append(spec.Entries, image.Entry{Path: "/usr/lib/" + simulatedLibraries + "/" + path, Source: library, Mode: 0o755})
		return startsIn(library, architecture)
	})
	return spec, err
}

// unpack returns the files of Debian packages. Tests replace it: it needs the network.
var unpack = func(ctx context.Context, packages []debian.Package) ([]image.Entry, error) {
	var all []image.Entry
	for _, p := range packages {
		content, err := p.Download(ctx)
		if err != nil {
			return nil, err
		}
		entries, err := debian.Unpack(content)
		if err != nil {
			return nil, fmt.Errorf("unpack Debian package %s %s: %w", p.Name, p.Version, err)
		}
		all = append(all, entries...)
	}
	return all, nil
}

// startsIn refuses a program for another architecture, and one that is linked with a
// newer C library than the image contains.
func startsIn(file, architecture string) error {
	program, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer program.Close()
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[architecture]
	if program.Machine != machine {
		return fmt.Errorf("%s is a program for %s, and the image is for %s", file, program.Machine, architecture)
	}
	symbols, err := program.ImportedSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, s := range symbols {
		if needed, ok := strings.CutPrefix(s.Version, "GLIBC_"); ok && newer(needed, debian.GLIBC) {
			return fmt.Errorf("%s needs glibc %s for %s, and the image contains %s: build it on Debian 12, such as in a container of golang:1.27-bookworm",
				file, needed, s.Name, debian.GLIBC)
		}
	}
	return nil
}

// newer compares versions of the C library, such as 2.2.5 and 2.36.
func newer(version, than string) bool {
	a, b := strings.Split(version, "."), strings.Split(than, ".")
	for i := range min(len(a), len(b)) {
		x, errX := strconv.Atoi(a[i])
		y, errY := strconv.Atoi(b[i])
		if errX == nil && errY == nil && x != y {
			return x > y
		}
	}
	return len(a) > len(b)
}

// contents are those of an image, from the programs in a folder.
type contents func(ctx context.Context, folder, architecture string) (image.Spec, error)

// images are the images by their names: what follows the product's, after a dash.
var images = map[string]contents{"": product, simulatedDriver: simulation}

// programsOf are the images' programs.
var programsOf = map[string][]string{"": programs, simulatedDriver: {simulatedDriver}}

// packagesOf are the Debian packages in an image: what programs need, and the texts of their licenses.
func packagesOf(name, architecture string) ([]debian.Package, error) {
	packages, err := debian.Runtime(architecture)
	if name == simulatedDriver {
		packages = slices.DeleteFunc(packages, func(p debian.Package) bool { return !p.Texts })
	}
	return packages, err
}

// folderOfLicenses is where licenses and notices are in images.
const folderOfLicenses = "/licenses/"

// specOf is the image with a name, from the programs in a folder: with Debian's files, the license, and the
// notices of what is in the programs.
func (s sources) specOf(ctx context.Context, name, folder, architecture string) (image.Spec, error) {
	of := images[name]
	if of == nil {
		return image.Spec{}, fmt.Errorf("--image is %q: it is empty for the product's image, or %s", name, simulatedDriver)
	}
	packages, err := packagesOf(name, architecture)
	if err != nil {
		return image.Spec{}, err
	}
	spec, err := of(ctx, folder, architecture)
	if err != nil {
		return image.Spec{}, err
	}
	files, err := unpack(ctx, packages)
	if err != nil {
		return image.Spec{}, err
	}
	licenses, err := s.licenses(ctx, folderOfLicenses, programsIn(folder, name)...)
	if err != nil {
		return image.Spec{}, err
	}
	spec.Entries = slices.Concat(files, spec.Entries, licenses)
	return spec, nil
}

// programsIn are the programs of an image, in a folder. Libraries of the simulated driver contain nothing that
// its program does not.
func programsIn(folder, name string) (files []string) {
	for _, program := range programsOf[name] {
		files = append(files, filepath.Join(folder, program))
	}
	return files
}

// sources is the folder of the repository.
type sources string

// licenses are the license and the notices of what is in programs, as files below a path.
func (s sources) licenses(ctx context.Context, below string, programs ...string) ([]image.Entry, error) {
	modules, err := notices.OfPrograms(ctx, string(s), programs...)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := notices.Write(&text, modules); err != nil {
		return nil, err
	}
	return []image.Entry{s.license(below), {Path: below + notices.FileName, Data: text.Bytes()}}, nil
}

// license is that of Tranche.
func (s sources) license(below string) image.Entry {
	return image.Entry{Path: below + "LICENSE", Source: filepath.Join(string(s), "LICENSE"), Mode: 0o644}
}

// writeImage writes the image of this machine's architecture, for a cluster on it.
func (s sources) writeImage(ctx context.Context, name, folder, tag, out string) error {
	spec, err := s.specOf(ctx, name, folder, runtime.GOARCH)
	if err != nil {
		return err
	}
	return image.Write(out, spec, tag)
}

// writeRoot writes the files of the product's image.
func (s sources) writeRoot(ctx context.Context, folder, architecture, out string) error {
	spec, err := s.specOf(ctx, "", folder, architecture)
	if err != nil {
		return err
	}
	return image.Atomically(out, func(w io.Writer) error { return image.WriteTar(w, spec.Entries) })
}

// releaseImage is the image of one architecture in a release.
func (s sources) releaseImage(ctx context.Context, name, folder, architecture string, labels map[string]string) (v1.Image, error) {
	spec, err := s.specOf(ctx, name, folder, architecture)
	if err != nil {
		return nil, err
	}
	spec.Labels = labels
	return image.Build(spec)
}
