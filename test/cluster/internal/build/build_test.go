package build

import (
	"archive/tar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fake makes an installation whose files say their own names.
func fake(t *testing.T) Dir {
	t.Helper()
	dir := Dir(t.TempDir())
	for _, part := range parts() {
		for _, file := range part.files {
			path := filepath.Join(string(dir), file)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(file), 0o755))
		}
	}
	for _, component := range components {
		require.NoError(t, os.Remove(dir.Program(component)))
		require.NoError(t, os.Symlink("kubernetes", dir.Program(component)))
	}
	return dir
}

func TestMissing(t *testing.T) {
	require.Len(t, Dir(t.TempDir()).Missing(), len(parts()))
	dir := fake(t)
	require.Empty(t, dir.Missing())
	require.NoError(t, os.Remove(dir.Program("kubernetes")))
	require.Len(t, dir.Missing(), 1, "links to nothing are not enough")
	require.Contains(t, dir.Missing()[0], "Kubernetes")
}

func TestOptionalPartsAreMissedByWhomAsks(t *testing.T) {
	dir := fake(t)
	for _, p := range projects {
		missing := dir.Missing(p.name)
		require.Len(t, missing, 1)
		require.Contains(t, strings.ToLower(missing[0]), p.name)
		require.Contains(t, dir.Optional(p.name), p.version, "another version has another folder")
	}
	require.Len(t, dir.Missing(Optional()...), len(projects))
}

func TestInstallOfNothingNeedsNothing(t *testing.T) {
	t.Setenv("PATH", "")
	require.NoError(t, fake(t).Install(t.Context(), "/no/source", t.Logf))
}

func TestKubernetesVersionIsThatOfTheModule(t *testing.T) {
	module, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(module), "k8s.io/kubernetes "+kubernetes+"\n")
}

func TestAnotherKubernetes(t *testing.T) {
	t.Setenv(KubernetesVariable, "")
	require.Equal(t, kubernetes, Kubernetes())
	usual, err := DefaultDir()
	require.NoError(t, err)
	for _, version := range []string{"v1.36.5", "v1.38.0-beta.0"} {
		t.Setenv(KubernetesVariable, version)
		dir, err := DefaultDir()
		require.NoError(t, err)
		require.NotEqual(t, usual, dir)
		require.Contains(t, string(dir), "/"+version+"-")
	}
	for _, version := range []string{"1.36.5", "v1.36", "v1.36.5/../x", "latest"} {
		t.Setenv(KubernetesVariable, version)
		_, err := DefaultDir()
		require.ErrorContains(t, err, "K8S_VERSION is \""+version+"\"")
	}
}

func TestGoModOfAnotherKubernetes(t *testing.T) {
	const upstream = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nrequire k8s.io/api v0.0.0\n\n" +
		"replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\texample.com/a => example.com/b v1.0.0\n)\n"
	require.Equal(t, "module github.com/tranche-dev/tranche/test/cluster/cmd/kubernetes\n\ngo 1.26.0\n\nrequire k8s.io/api v0.0.0\n\n"+
		"replace (\n\tk8s.io/api => k8s.io/api v0.38.0-beta.0\n\texample.com/a => example.com/b v1.0.0\n)\n\n"+
		"require k8s.io/kubernetes v1.38.0-beta.0\n", string(goMod([]byte(upstream), "v1.38.0-beta.0")))
}

func TestKubernetesFlags(t *testing.T) {
	flags := kubernetesFlags("v1.37.1")
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.37.1",
		"-X k8s.io/component-base/version.gitMinor=37",
		"-X k8s.io/client-go/pkg/version.gitVersion=v1.37.1",
	} {
		require.Contains(t, flags, want)
	}
}

func TestFindSource(t *testing.T) {
	here, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	for _, from := range []string{".", filepath.Join("..", ".."), filepath.Join("..", "..", "..", "..")} {
		t.Run(from, func(t *testing.T) {
			t.Chdir(from)
			source, err := FindSource()
			require.NoError(t, err)
			require.Equal(t, here, source)
		})
	}
	t.Chdir(t.TempDir())
	_, err = FindSource()
	require.ErrorContains(t, err, "--source")
}

func TestRunSaysWhatTheCommandSaid(t *testing.T) {
	err := run(t.Context(), "/", nil, "sh", "-c", "seq 1 100; echo it broke >&2; exit 3")
	require.ErrorContains(t, err, "it broke")
	require.ErrorContains(t, err, "exit status 3")
	require.NotContains(t, err.Error(), "\n50\n", "the end of it only")
	require.ErrorContains(t, run(t.Context(), "/", nil, "no-such-program"), `"no-such-program"`)
}

func TestPackAndUnpack(t *testing.T) {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("to pack needs the program xz")
	}
	packed, archive := fake(t), filepath.Join(t.TempDir(), "parts.tar.xz")
	require.NoError(t, packed.Pack(t.Context(), archive, t.Logf))

	unpacked := Dir(filepath.Join(t.TempDir(), "deep", "folder"))
	for range 2 { // the second time over what is there
		require.NoError(t, unpacked.Unpack(t.Context(), archive, t.Logf))
		require.Empty(t, unpacked.Missing())
	}
	content, err := os.ReadFile(unpacked.Program("kubelet"))
	require.NoError(t, err)
	require.Equal(t, "bin/kubernetes", string(content))
	info, err := os.Stat(unpacked.Program("runc"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	left, err := filepath.Glob(filepath.Join(unpacked.Bin(), ".unpack-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	require.NoError(t, os.Remove(packed.Program("helm")))
	require.ErrorContains(t, packed.Pack(t.Context(), archive, t.Logf), "helm")
}

func TestUnpackRefuses(t *testing.T) {
	dir := Dir(t.TempDir())
	for what, test := range map[string]struct{ name, link, want string }{
		"another version":     {"v1.0.0-00000000/bin/kubelet", "", "does not belong"},
		"a way out":           {key() + "/../../bin/sh", "", "does not belong"},
		"an absolute path":    {"/bin/sh", "", "does not belong"},
		"a link out":          {key() + "/bin/kubelet", "/bin/sh", "links out"},
		"a relative link out": {key() + "/bin/kubelet", "../x", "links out"},
	} {
		t.Run(what, func(t *testing.T) {
			header := &tar.Header{Name: test.name, Typeflag: tar.TypeReg}
			if test.link != "" {
				header.Typeflag, header.Linkname = tar.TypeSymlink, test.link
			}
			require.ErrorContains(t, dir.unpackMember(strings.NewReader(""), header), test.want)
		})
	}
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("hello"), 0o644))
	require.ErrorContains(t, dir.Unpack(t.Context(), text, t.Logf), "no xz archive")
}

func TestInstallsExcludeEachOther(t *testing.T) {
	dir := Dir(t.TempDir())
	unlock, err := dir.lock(t.Logf)
	require.NoError(t, err)
	waiting, second := make(chan struct{}), make(chan error)
	go func() {
		unlock, err := dir.lock(func(string, ...any) { close(waiting) })
		if err == nil {
			unlock()
		}
		second <- err
	}()
	<-waiting
	unlock()
	require.NoError(t, <-second)
}
