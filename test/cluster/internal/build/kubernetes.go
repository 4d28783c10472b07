package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func buildKubernetes(ctx context.Context, job job) error {
	folder, program := job.source, []string{"./cmd/kubernetes"}
	if Kubernetes() != kubernetes {
		folder, program = filepath.Join(job.out, "module"), []string{"-mod=mod", "."}
		if err := writeModule(ctx, job, folder); err != nil {
			return fmt.Errorf("write a module for %s=%s: %w", KubernetesVariable, Kubernetes(), err)
		}
	}
	bin := filepath.Join(job.out, "bin")
	args := []string{"build", "-ldflags", kubernetesFlags(Kubernetes()), "-o", filepath.Join(bin, "kubernetes")}
	if err := goCommand(ctx, folder, nil, append(args, program...)...); err != nil {
		return err
	}
	for _, component := range components {
		if err := os.Symlink("kubernetes", filepath.Join(bin, component)); err != nil {
			return err
		}
	}
	return nil
}

// writeModule writes a Go module of cmd/kubernetes with another version than that of this module.
func writeModule(ctx context.Context, job job, folder string) error {
	version := "k8s.io/kubernetes@" + Kubernetes()
	if err := goCommand(ctx, "/", nil, "mod", "download", version); err != nil {
		return err
	}
	cache, err := output(ctx, "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	upstream, err := os.ReadFile(filepath.Join(cache, version, "go.mod"))
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(cache, version, "go.sum"))
	if err != nil {
		return err
	}
	main, err := os.ReadFile(filepath.Join(job.source, "cmd", "kubernetes", "main.go"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"go.mod": goMod(upstream, Kubernetes()), "go.sum": sums, "main.go": main} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

var (
	moduleLine = regexp.MustCompile(`(?m)^module k8s\.io/kubernetes$`)
	staged     = regexp.MustCompile(`(?m)^(\s+(k8s\.io/\S+) => )\./staging/src/k8s\.io/\S+$`)
)

// goMod is a go.mod with the dependencies of a version of Kubernetes, whose own go.mod replaces parts by folders
// that the published module does not contain.
func goMod(upstream []byte, version string) []byte {
	text := moduleLine.ReplaceAll(upstream, []byte("module "+module+"/cmd/kubernetes"))
	text = staged.ReplaceAll(text, []byte("${1}${2} v0."+strings.TrimPrefix(version, "v1.")))
	return append(text, "\nrequire k8s.io/kubernetes "+version+"\n"...)
}

// kubernetesFlags are the linker flags that give Kubernetes its version, as
// its own build does; without them everything reports v0.0.0.
func kubernetesFlags(version string) string {
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, value := range []string{
			"gitVersion=" + version, "gitMajor=" + numbers[0], "gitMinor=" + numbers[1], "gitTreeState=clean",
		} {
			flags = append(flags, "-X", pkg+"."+value)
		}
	}
	return strings.Join(flags, " ")
}
