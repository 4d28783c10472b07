package artifact

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push pushes the packaged chart to REGISTRY/charts/NAME:VERSION, with name and version of the chart,
// and archives of images, by what follows the chart's name in theirs, to REGISTRY/NAME[-IMAGE]:VERSION.
// It returns what it has pushed, the chart last. Passwords are those that `docker login` has stored.
func Push(ctx context.Context, registry, chartArchive string, imageArchives map[string]string) ([]Pushed, error) {
	packaged, err := os.ReadFile(chartArchive)
	if err != nil {
		return nil, err
	}
	artifact, chart, err := newChartArtifact(packaged)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", chartArchive, err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	var all []Pushed
	for _, image := range slices.Sorted(maps.Keys(imageArchives)) {
		tagged := path.Join(registry, strings.TrimSuffix(chart.Name+"-"+image, "-")) + ":" + chart.AppVersion
		one, err := pushImage(tagged, imageArchives[image], options)
		if err != nil {
			return nil, err
		}
		one.Image = image
		all = append(all, one)
	}
	chartTag, err := name.NewTag(path.Join(registry, "charts", chart.Name)+":"+chart.Version, name.StrictValidation)
	if err != nil {
		return nil, err
	}
	if err := remote.Write(chartTag, artifact, options...); err != nil {
		return nil, fmt.Errorf("push %s: %w", chartTag, err)
	}
	digest, err := artifact.Digest()
	if err != nil {
		return nil, err
	}
	return append(all, Pushed{Reference: reference(chartTag, digest)}), nil
}

// Pushed is an image or chart in a registry.
type Pushed struct {
	// Reference has tag and digest.
	Reference string
	// Image is what follows the chart's name in the name of an image.
	Image string
	// Platforms are references to the images of an index, with digests, by architecture.
	Platforms map[string]string
}

func pushImage(tagged, archive string, options []remote.Option) (Pushed, error) {
	tag, err := name.NewTag(tagged, name.StrictValidation)
	if err != nil {
		return Pushed{}, err
	}
	dir, err := os.MkdirTemp("", "push-")
	if err != nil {
		return Pushed{}, err
	}
	defer os.RemoveAll(dir)
	index, err := ReadLayout(filepath.Clean(archive), dir)
	if err != nil {
		return Pushed{}, err
	}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return Pushed{}, fmt.Errorf("push %s: %w", tag, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return Pushed{}, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return Pushed{}, err
	}
	one := Pushed{Reference: reference(tag, digest), Platforms: map[string]string{}}
	for _, m := range manifest.Manifests {
		one.Platforms[m.Platform.Architecture] = tag.Context().String() + "@" + m.Digest.String()
	}
	return one, nil
}

func reference(tag name.Tag, digest v1.Hash) string { return tag.String() + "@" + digest.String() }
