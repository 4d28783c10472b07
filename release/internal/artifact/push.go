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
// It returns all references with their digests, the chart's last. Passwords are those that `docker
// login` has stored.
func Push(ctx context.Context, registry, chartArchive string, imageArchives map[string]string) ([]string, error) {
	packaged, err := os.ReadFile(chartArchive)
	if err != nil {
		return nil, err
	}
	artifact, chart, err := newChartArtifact(packaged)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", chartArchive, err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	var all []string
	for _, image := range slices.Sorted(maps.Keys(imageArchives)) {
		reference := path.Join(registry, strings.TrimSuffix(chart.Name+"-"+image, "-")) + ":" + chart.AppVersion
		one, err := pushImage(reference, imageArchives[image], options)
		if err != nil {
			return nil, err
		}
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
	return append(all, pushed(chartTag, digest)), nil
}

func pushImage(reference, archive string, options []remote.Option) (string, error) {
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "push-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	index, err := ReadLayout(filepath.Clean(archive), dir)
	if err != nil {
		return "", err
	}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return "", fmt.Errorf("push %s: %w", tag, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	return pushed(tag, digest), nil
}

func pushed(tag name.Tag, digest v1.Hash) string { return tag.String() + "@" + digest.String() }
