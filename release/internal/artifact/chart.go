package artifact

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/release/image"
)

// Media types of a chart in a registry, as in helm's documentation.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// Chart is the name and the version in a chart's Chart.yaml.
type Chart struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	AppVersion string `json:"appVersion"`
}

// ReadChart reads the Chart.yaml of the chart in a folder.
func ReadChart(folder string) (Chart, error) {
	file := filepath.Join(folder, "Chart.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return Chart{}, err
	}
	var chart Chart
	if err := yaml.Unmarshal(content, &chart); err != nil {
		return Chart{}, fmt.Errorf("%s: %w", file, err)
	}
	return chart, nil
}

// PackageChart writes the chart in a folder as `helm package` does, but equal content
// gives equal bytes. Hidden files are left out. More files lie beside Chart.yaml.
func PackageChart(w io.Writer, folder string, more ...image.Entry) error {
	chart, err := ReadChart(folder)
	if err != nil {
		return err
	}
	var entries []image.Entry
	err = filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return fs.SkipDir
		case strings.HasPrefix(entry.Name(), ".") || entry.IsDir():
			return nil
		}
		relative, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		entries = append(entries, image.Entry{Path: path.Join("/", chart.Name, filepath.ToSlash(relative)), Source: file, Mode: 0o644})
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range more {
		e.Path = path.Join("/", chart.Name, e.Path)
		entries = append(entries, e)
	}
	return writeCompressed(w, entries)
}

func writeCompressed(w io.Writer, entries []image.Entry) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(image.WriteTar(packed, entries), packed.Close())
}

// chartArtifact is a packaged chart as an image of a registry. Helm wants the content of
// Chart.yaml where images have their configuration.
type chartArtifact struct {
	config   []byte
	manifest []byte
	content  v1.Layer
}

func newChartArtifact(archive []byte) (v1.Image, Chart, error) {
	metadata, err := chartYAML(archive)
	if err != nil {
		return nil, Chart{}, err
	}
	var chart Chart
	if err := yaml.Unmarshal(metadata, &chart); err != nil {
		return nil, Chart{}, fmt.Errorf("chart.yaml: %w", err)
	}
	a := chartArtifact{content: static.NewLayer(archive, chartContent)}
	if a.config, err = yaml.YAMLToJSON(metadata); err != nil {
		return nil, Chart{}, fmt.Errorf("chart.yaml: %w", err)
	}
	config, err := partial.Descriptor(static.NewLayer(a.config, chartConfig))
	if err != nil {
		return nil, Chart{}, err
	}
	content, err := partial.Descriptor(a.content)
	if err != nil {
		return nil, Chart{}, err
	}
	a.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: *config, Layers: []v1.Descriptor{*content},
		Annotations: map[string]string{
			"org.opencontainers.image.title": chart.Name, "org.opencontainers.image.version": chart.Version,
		},
	})
	if err != nil {
		return nil, Chart{}, err
	}
	artifact, err := partial.CompressedToImage(a)
	return artifact, chart, err
}

func (a chartArtifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a chartArtifact) RawConfigFile() ([]byte, error)      { return a.config, nil }
func (a chartArtifact) RawManifest() ([]byte, error)        { return a.manifest, nil }

func (a chartArtifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	for _, layer := range []v1.Layer{a.content, static.NewLayer(a.config, chartConfig)} {
		if found, err := layer.Digest(); err == nil && found == digest {
			return layer, nil
		}
	}
	return nil, fmt.Errorf("the chart has no blob %s", digest)
}

// chartYAML is the Chart.yaml in a packaged chart.
func chartYAML(archive []byte) ([]byte, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("read the packaged chart: %w", err)
	}
	var found []byte
	err = eachFile(unpacked, func(name string, content io.Reader) (err error) {
		if strings.Count(name, "/") == 1 && path.Base(name) == "Chart.yaml" {
			found, err = io.ReadAll(content)
		}
		return err
	})
	if err == nil && found == nil {
		err = errors.New("it contains no Chart.yaml")
	}
	if err != nil {
		return nil, fmt.Errorf("read the packaged chart: %w", err)
	}
	return found, nil
}
