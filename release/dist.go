package main

import (
	"archive/zip"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/tranche-dev/tranche/release/image"
	"github.com/tranche-dev/tranche/release/internal/artifact"
	"github.com/tranche-dev/tranche/release/internal/sbom"
)

const source = "https://github.com/tranche-dev/tranche"

// architectures are those of the image.
var architectures = []string{"amd64", "arm64"}

// systems are those for which there is a kubectl-tranche.
var systems = []string{"darwin", "linux", "windows"}

// dist writes a release.
type dist struct {
	programs, chart, repository, revision, out string
	sources                                    sources
	of                                         artifact.Chart
}

// imageFiles are the files of the images by the images' names, which follow the chart's after a dash.
func imageFiles(folder string, of artifact.Chart) map[string]string {
	files := map[string]string{}
	for name := range images {
		files[name] = filepath.Join(folder, strings.Join(append(strings.Fields(of.Name+" "+of.AppVersion+" "+name), "image.tar"), "-"))
	}
	return files
}

// chartFile has the name that helm gives it.
func chartFile(folder string, of artifact.Chart) string {
	return filepath.Join(folder, fmt.Sprintf("%s-%s.tgz", of.Name, of.Version))
}

func (d *dist) write(ctx context.Context) (err error) {
	if d.of, err = artifact.ReadChart(d.chart); err != nil {
		return err
	}
	// What an earlier version has left would be in the checksums.
	if err := os.RemoveAll(d.out); err != nil {
		return err
	}
	if err := os.MkdirAll(d.out, 0o755); err != nil {
		return err
	}
	err = image.Atomically(chartFile(d.out, d.of), func(w io.Writer) error { return artifact.PackageChart(w, d.chart, d.sources.license("/")) })
	if err != nil {
		return fmt.Errorf("package the chart: %w", err)
	}
	if err := d.writeImages(ctx); err != nil {
		return err
	}
	if err := d.writeClients(ctx); err != nil {
		return err
	}
	return d.writeChecksums()
}

// labels are those of an image.
func (d *dist) labels(of string) map[string]string {
	titles := map[string]string{"": "Tranche", simulatedDriver: "Simulated GPU drivers of Tranche"}
	return map[string]string{
		"org.opencontainers.image.title":    titles[of],
		"org.opencontainers.image.source":   source,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version":  d.of.AppVersion,
		"org.opencontainers.image.revision": d.revision,
	}
}

func (d *dist) writeImages(ctx context.Context) error {
	for name, file := range imageFiles(d.out, d.of) {
		if err := d.writeImage(ctx, name, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (d *dist) writeImage(ctx context.Context, of, file string) error {
	repository := strings.TrimSuffix(d.repository+"-"+of, "-")
	tag, err := name.NewTag(repository+":"+d.of.AppVersion, name.StrictValidation)
	if err != nil {
		return err
	}
	var built []v1.Image
	for _, architecture := range architectures {
		folder := filepath.Join(d.programs, "linux-"+architecture)
		one, err := d.sources.releaseImage(ctx, of, folder, architecture, d.labels(of))
		if err != nil {
			return err
		}
		built = append(built, one)
		bill := sbom.Subject{Type: cdx.ComponentTypeContainer, Name: repository, Version: d.of.AppVersion, Programs: programsIn(folder, of)}
		if bill.Packages, err = packagesOf(of, architecture); err != nil {
			return err
		}
		if err := d.writeBill(billOf(file, architecture), bill); err != nil {
			return err
		}
	}
	index, err := artifact.Index(built...)
	if err != nil {
		return err
	}
	return image.Atomically(file, func(w io.Writer) error { return artifact.WriteLayout(w, index, tag) })
}

// billOf is the path of an image's bill of materials.
func billOf(imageFile, architecture string) string {
	return strings.TrimSuffix(imageFile, ".tar") + "-linux-" + architecture + ".cdx.json"
}

// sbomsOf are lines with an image of one architecture, by digest, and its bill of materials.
func sbomsOf(all []artifact.Pushed, files map[string]string) string {
	var out strings.Builder
	for _, one := range all {
		for _, architecture := range slices.Sorted(maps.Keys(one.Platforms)) {
			fmt.Fprintf(&out, "%s %s\n", one.Platforms[architecture], billOf(files[one.Image], architecture))
		}
	}
	return out.String()
}

// writeClients writes an archive of kubectl-tranche for each platform, its bill of
// materials, and the manifest for krew.
func (d *dist) writeClients(ctx context.Context) error {
	var archives []krewArchive
	for _, system := range systems {
		for _, architecture := range architectures {
			file, err := d.writeClient(ctx, system, architecture)
			if err != nil {
				return fmt.Errorf("archive of kubectl-tranche for %s/%s: %w", system, architecture, err)
			}
			sum, err := checksum(file)
			if err != nil {
				return err
			}
			archives = append(archives, krewArchive{system, architecture, filepath.Base(file), sum})
		}
	}
	// The modules hardly differ between platforms.
	err := d.writeBill(filepath.Join(d.out, fmt.Sprintf("kubectl-tranche-%s.cdx.json", d.of.AppVersion)), sbom.Subject{
		Type: cdx.ComponentTypeApplication, Name: "kubectl-tranche-" + d.of.AppVersion, Version: d.of.AppVersion,
		Programs: []string{filepath.Join(d.programs, "linux-amd64", "kubectl-tranche")},
	})
	if err != nil {
		return err
	}
	return image.Atomically(filepath.Join(d.out, "tranche.yaml"), func(w io.Writer) error {
		return writeKrewManifest(w, d.of.AppVersion, archives)
	})
}

func (d *dist) writeClient(ctx context.Context, system, architecture string) (string, error) {
	program, ending := "kubectl-tranche", ".tar.gz"
	if system == "windows" {
		program, ending = program+".exe", ".zip"
	}
	file := filepath.Join(d.out, fmt.Sprintf("kubectl-tranche-%s-%s-%s%s", d.of.AppVersion, system, architecture, ending))
	source := filepath.Join(d.programs, system+"-"+architecture, program)
	completes := "kubectl_complete-tranche"
	if system == "windows" {
		completes += ".cmd"
	}
	licenses, err := d.sources.licenses(ctx, "/", source)
	if err != nil {
		return "", err
	}
	entries := append([]image.Entry{
		{Path: "/" + program, Source: source, Mode: 0o755},
		{Path: "/" + completes, Source: filepath.Join(string(d.sources), "cmd", "kubectl-tranche", completes), Mode: 0o755},
	}, licenses...)
	return file, image.Atomically(file, func(w io.Writer) error {
		if system == "windows" {
			return writeZip(w, entries)
		}
		packed := gzip.NewWriter(w)
		return errors.Join(image.WriteTar(packed, entries), packed.Close())
	})
}

func writeZip(w io.Writer, entries []image.Entry) error {
	archive := zip.NewWriter(w)
	for _, e := range entries {
		header := &zip.FileHeader{Name: strings.TrimPrefix(e.Path, "/"), Method: zip.Deflate}
		header.SetMode(e.Mode)
		out, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		content := e.Data
		if e.Source != "" {
			if content, err = os.ReadFile(e.Source); err != nil {
				return err
			}
		}
		if _, err := out.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (d *dist) writeBill(file string, of sbom.Subject) error {
	return image.Atomically(file, func(w io.Writer) error { return sbom.Write(w, of) })
}

// writeChecksums writes SHA256SUMS, which `sha256sum --check` reads.
func (d *dist) writeChecksums() error {
	entries, err := os.ReadDir(d.out) // sorted by name
	if err != nil {
		return err
	}
	return image.Atomically(filepath.Join(d.out, "SHA256SUMS"), func(w io.Writer) error {
		out := bufio.NewWriter(w)
		for _, e := range entries {
			sum, err := checksum(filepath.Join(d.out, e.Name()))
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s  %s\n", sum, e.Name())
		}
		return out.Flush()
	})
}

func checksum(file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
