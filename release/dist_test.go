package main

import (
	"archive/zip"
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/release/image"
	"github.com/tranche-dev/tranche/release/internal/artifact"
	"github.com/tranche-dev/tranche/release/internal/debian"
	"github.com/tranche-dev/tranche/release/internal/notices"
)

const chartFolder = "../deployments/helm/tranche"

// newDist has a small program in the place of each.
func newDist(t *testing.T) *dist {
	t.Helper()
	old := unpack
	t.Cleanup(func() { unpack = old })
	unpack = func(_ context.Context, packages []debian.Package) (entries []image.Entry, err error) {
		for _, p := range packages {
			entries = append(entries, image.Entry{Path: "/debian/" + p.Name, Data: []byte(p.Name)})
		}
		return entries, nil
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"main.go": "package main\n\nfunc main() {}\n", "go.mod": "module example.com/small\n", "LICENSE": "Tranche's",
		"cmd/kubectl-tranche/kubectl_complete-tranche": "", "cmd/kubectl-tranche/kubectl_complete-tranche.cmd": "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	t.Setenv("GOFLAGS", "")
	d := &dist{
		programs: filepath.Join(dir, "programs"), chart: chartFolder, sources: sources(dir),
		repository: "ghcr.io/tranche-dev/tranche", revision: "abc", out: filepath.Join(dir, "dist"),
	}
	for _, architecture := range architectures {
		program := filepath.Join(dir, "small-"+architecture)
		build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program)
		build.Dir = dir
		build.Env = append(build.Environ(), "GOARCH="+architecture, "GOOS=linux", "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
		content, err := os.ReadFile(program)
		require.NoError(t, err)
		for _, system := range systems {
			folder := filepath.Join(d.programs, system+"-"+architecture)
			require.NoError(t, os.MkdirAll(folder, 0o755))
			libraries := filepath.Join(simulatedLibraries, "580")
			require.NoError(t, os.MkdirAll(filepath.Join(folder, libraries), 0o755))
			for _, name := range append([]string{"kubectl-tranche", "kubectl-tranche.exe", simulatedDriver, libraries + "/libnvidia-ml.so.1"}, programs...) {
				require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o755)) //nolint:gosec // a program
			}
		}
	}
	return d
}

func TestDist(t *testing.T) {
	d := newDist(t)
	require.NoError(t, d.write(t.Context()))
	sums := read(t, d.out, "SHA256SUMS")
	require.NoError(t, d.write(t.Context()))
	assert.Equal(t, sums, read(t, d.out, "SHA256SUMS"), "a second build differs")

	// Two architectures of two images, three systems, their bills of materials.
	assert.Len(t, strings.Split(strings.TrimSpace(sums), "\n"), 1+2+4+6+1+1)
	assert.Contains(t, sums, "  tranche-"+d.of.AppVersion+"-image.tar\n")
	assert.Contains(t, sums, "  tranche-"+d.of.AppVersion+"-simulated-driver-image-linux-arm64.cdx.json\n")
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = d.out
	out, err := check.CombinedOutput()
	require.NoError(t, err, string(out))

	var manifest struct {
		Spec struct {
			Version   string `json:"version"`
			Platforms []struct {
				URI, SHA256, Bin string
				Selector         struct{ MatchLabels map[string]string }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, d.out, "tranche.yaml")), &manifest))
	require.Len(t, manifest.Spec.Platforms, 6)
	for _, p := range manifest.Spec.Platforms {
		file := p.URI[strings.LastIndex(p.URI, "/")+1:]
		assert.Contains(t, sums, p.SHA256+"  "+file+"\n", "krew checks the archive's checksum")
		assert.Contains(t, file, p.Selector.MatchLabels["os"]+"-"+p.Selector.MatchLabels["arch"])
		if p.Selector.MatchLabels["os"] != "windows" {
			list, err := exec.CommandContext(t.Context(), "tar", "-tzf", filepath.Join(d.out, file)).Output()
			require.NoError(t, err)
			assert.ElementsMatch(t, []string{"LICENSE", notices.FileName, p.Bin, "kubectl_complete-tranche"}, strings.Fields(string(list)))
			continue
		}
		archive, err := zip.OpenReader(filepath.Join(d.out, file))
		require.NoError(t, err)
		require.Len(t, archive.File, 4)
		assert.Equal(t, p.Bin, archive.File[0].Name)
		assert.Equal(t, "kubectl_complete-tranche.cmd", archive.File[1].Name)
		assert.Equal(t, notices.FileName, archive.File[3].Name)
		require.NoError(t, archive.Close())
	}
}

func TestPush(t *testing.T) {
	d := newDist(t)
	require.NoError(t, d.write(t.Context()))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/team"

	pushed, err := artifact.Push(t.Context(), to, chartFile(d.out, d.of), imageFiles(d.out, d.of))
	require.NoError(t, err)
	require.Len(t, pushed, 3)
	assert.Contains(t, pushed[0].Reference, to+"/tranche:"+d.of.AppVersion+"@sha256:")
	assert.Contains(t, pushed[1].Reference, to+"/tranche-simulated-driver:"+d.of.AppVersion+"@sha256:")
	assert.Contains(t, pushed[2].Reference, to+"/charts/tranche:"+d.of.Version+"@sha256:")

	sboms := strings.Split(strings.TrimSpace(sbomsOf(pushed, imageFiles(d.out, d.of))), "\n")
	require.Len(t, sboms, 4)
	for i, line := range sboms {
		reference, file, _ := strings.Cut(line, " ")
		assert.Contains(t, file, []string{"-image-linux-amd64.", "-image-linux-arm64."}[i%2])
		assert.Equal(t, i > 1, strings.Contains(file, "simulated-driver"))
		require.FileExists(t, file)
		parsed, err := name.NewDigest(reference)
		require.NoError(t, err)
		_, err = remote.Image(parsed)
		require.NoError(t, err)
	}

	assertImage(t, to+"/tranche:"+d.of.AppVersion, append([]string{"debian/libc6", "debian/gcc-12-base", "debian/base-files", "licenses/LICENSE", "licenses/" + notices.FileName}, programs...))
	assertImage(t, to+"/tranche-simulated-driver:"+d.of.AppVersion, []string{
		"usr/bin/simulated-driver", "usr/lib/simulated-nvml/580/libnvidia-ml.so.1", "debian/base-files", "licenses/" + notices.FileName,
	})

	helm := os.Getenv("HELM")
	if helm == "" {
		t.Skip("HELM names no helm, which pulls the chart")
	}
	pull := exec.CommandContext(t.Context(), helm, "template", "tranche", "oci://"+to+"/charts/tranche", "--plain-http",
		"--version", d.of.Version, "--kube-version", "1.37.1")
	pull.Env = append(pull.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	out, err := pull.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "kind: DaemonSet")
}

// assertImage checks that an image in a registry has files, for each architecture.
func assertImage(t *testing.T, of string, want []string) {
	t.Helper()
	index, err := remote.Index(tag(t, of))
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, len(architectures))
	for i, m := range manifest.Manifests {
		assert.Equal(t, "linux/"+architectures[i], m.Platform.String())
		one, err := index.Image(m.Digest)
		require.NoError(t, err)
		files, err := io.ReadAll(mutate.Extract(one))
		require.NoError(t, err)
		for _, file := range want {
			assert.Contains(t, string(files), file)
		}
	}
}

func TestPushNames(t *testing.T) {
	_, err := artifact.Push(t.Context(), "", "no-such.tgz", nil)
	require.ErrorContains(t, err, "no-such.tgz")
}

func TestStartsIn(t *testing.T) {
	d := newDist(t)
	program := filepath.Join(d.programs, "linux-amd64", programs[0])
	require.NoError(t, startsIn(program, "amd64"))
	require.ErrorContains(t, startsIn(program, "arm64"), "the image is for arm64")
	for version, than := range map[string]string{"2.37": "2.36", "2.100": "2.36", "2.36.1": "2.36"} {
		assert.True(t, newer(version, than), version)
		assert.False(t, newer(than, version), version)
	}
	assert.False(t, newer("2.36", "2.36"))
}

// Each program of the repository is in the image, except those that people have on
// their own machines.
func TestProgramsAreInTheImage(t *testing.T) {
	mains, err := filepath.Glob("../cmd/*/main.go")
	require.NoError(t, err)
	require.NotEmpty(t, mains)
	makefile := read(t, "..", "Makefile")
	for _, main := range mains {
		program := filepath.Base(filepath.Dir(main))
		assert.Contains(t, makefile, "-o $(BIN)/"+program+" ./cmd/"+program+"\n")
		if program != "kubectl-tranche" {
			assert.Contains(t, programs, program)
		}
	}
}

func tag(t *testing.T, of string) name.Tag {
	t.Helper()
	tag, err := name.NewTag(of)
	require.NoError(t, err)
	return tag
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(content)
}
