package artifact

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push pushes the image archive to REGISTRY/NAME:VERSION and the packaged chart to
// REGISTRY/charts/NAME:VERSION, with name and version of the chart, and returns both
// references with their digests. Passwords are those that `docker login` has stored.
func Push(ctx context.Context, registry, imageArchive, chartArchive string) ([]string, error) {
	packaged, err := os.ReadFile(chartArchive)
	if err != nil {
		return nil, err
	}
	artifact, chart, err := newChartArtifact(packaged)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", chartArchive, err)
	}
	dir, err := os.MkdirTemp("", "push-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	index, err := ReadLayout(filepath.Clean(imageArchive), dir)
	if err != nil {
		return nil, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	imageTag, err := name.NewTag(path.Join(registry, chart.Name)+":"+chart.AppVersion, name.StrictValidation)
	if err != nil {
		return nil, err
	}
	if err := remote.WriteIndex(imageTag, index, options...); err != nil {
		return nil, fmt.Errorf("push %s: %w", imageTag, err)
	}
	chartTag, err := name.NewTag(path.Join(registry, "charts", chart.Name)+":"+chart.Version, name.StrictValidation)
	if err != nil {
		return nil, err
	}
	if err := remote.Write(chartTag, artifact, options...); err != nil {
		return nil, fmt.Errorf("push %s: %w", chartTag, err)
	}
	imageDigest, err := index.Digest()
	if err != nil {
		return nil, err
	}
	chartDigest, err := artifact.Digest()
	if err != nil {
		return nil, err
	}
	return []string{pushed(imageTag, imageDigest), pushed(chartTag, chartDigest)}, nil
}

func pushed(tag name.Tag, digest v1.Hash) string { return tag.String() + "@" + digest.String() }
