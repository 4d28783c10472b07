package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-dev/tranche/release/image"
)

const kueueFolder = "kueue-" + Kueue

// buildKueue builds the manager as its own module says, with its own versions of
// Kubernetes' libraries, and packs the chart of the module. The module's chart has the
// image of a development branch: values.yaml has that of the release.
func buildKueue(ctx context.Context, job job) error {
	const module = "sigs.k8s.io/kueue@" + Kueue
	if err := goCommand(ctx, "/", nil, "mod", "download", module); err != nil {
		return err
	}
	cache, err := output(ctx, "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	source, out := filepath.Join(cache, module), filepath.Join(job.out, kueueFolder)
	manager := filepath.Join(out, "manager")
	const version = "sigs.k8s.io/kueue/pkg/version.GitVersion="
	if err := goCommand(ctx, source, nil, "build", "-ldflags", "-s -w -X "+version+Kueue, "-o", manager, "./cmd/kueue"); err != nil {
		return err
	}
	defer os.Remove(manager)
	if err := run(ctx, out, nil, job.install.Program("helm"), "package", filepath.Join(source, "charts", "kueue")); err != nil {
		return err
	}
	chart := filepath.Join(out, "kueue-"+strings.TrimPrefix(Kueue, "v")+".tgz")
	if err := os.Rename(chart, filepath.Join(out, "chart.tgz")); err != nil {
		return err
	}
	repository, tag, _ := strings.Cut(KueueImage, ":")
	values := fmt.Sprintf("controllerManager: {manager: {image: {repository: %s, tag: %s, pullPolicy: IfNotPresent}}}\n", repository, tag)
	if err := os.WriteFile(filepath.Join(out, "values.yaml"), []byte(values), 0o644); err != nil {
		return err
	}
	return image.Write(filepath.Join(out, "image.tar"), image.Spec{
		Entrypoint: []string{"/manager"}, User: "65532:65532",
		Entries: []image.Entry{
			{Path: "/manager", Source: manager, Mode: 0o755},
			image.Dir("/tmp", 0o777|os.ModeSticky),
		},
	}, KueueImage)
}
