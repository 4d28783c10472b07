package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-dev/tranche/release/image"
)

// project is another project's manager and chart: an optional part. Its version is in the name of its folder,
// not in key.
type project struct {
	title, name, version string
	// command is the manager's package, values is how the chart's values name the image.
	command, values string
}

// projects are the optional parts.
var projects = []project{
	{"Kueue", "kueue", "v0.19.2", "./cmd/kueue", "controllerManager: {manager: {image: %s}}\n"},
	{"JobSet", "jobset", "v0.11.0", ".", "image: %s\n"},
}

// folder is where the part is in an installation.
func (p project) folder() string { return p.name + "-" + p.version }

// repository is where the project publishes the image of its manager.
func (p project) repository() string { return "registry.k8s.io/" + p.name + "/" + p.name }

func (p project) part() part {
	return part{p.title + " " + p.version, in(p.folder(), "chart.tgz", "image.tar", "values.yaml"), p.build}
}

// build builds the manager as its own module says, with its own versions of Kubernetes' libraries, and packs
// the chart of the module. The module's chart has the image of a development branch: values.yaml has that of
// the release.
func (p project) build(ctx context.Context, job job) error {
	module := "sigs.k8s.io/" + p.name
	if err := goCommand(ctx, "/", nil, "mod", "download", module+"@"+p.version); err != nil {
		return err
	}
	cache, err := output(ctx, "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	source, out := filepath.Join(cache, module+"@"+p.version), filepath.Join(job.out, p.folder())
	manager := filepath.Join(out, "manager")
	version := "-s -w -X " + module + "/pkg/version.GitVersion=" + p.version
	if err := goCommand(ctx, source, nil, "build", "-ldflags", version, "-o", manager, p.command); err != nil {
		return err
	}
	defer os.Remove(manager)
	if err := run(ctx, out, nil, job.install.Program("helm"), "package", filepath.Join(source, "charts", p.name)); err != nil {
		return err
	}
	chart := filepath.Join(out, p.name+"-"+strings.TrimPrefix(p.version, "v")+".tgz")
	if err := os.Rename(chart, filepath.Join(out, "chart.tgz")); err != nil {
		return err
	}
	values := fmt.Sprintf(p.values, fmt.Sprintf("{repository: %s, tag: %s, pullPolicy: IfNotPresent}", p.repository(), p.version))
	if err := os.WriteFile(filepath.Join(out, "values.yaml"), []byte(values), 0o644); err != nil {
		return err
	}
	return image.Write(filepath.Join(out, "image.tar"), image.Spec{
		Entrypoint: []string{"/manager"}, User: "65532:65532",
		Entries: []image.Entry{
			{Path: "/manager", Source: manager, Mode: 0o755},
			image.Dir("/tmp", 0o777|os.ModeSticky),
		},
	}, p.repository()+":"+p.version)
}
