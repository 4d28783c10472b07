package sbom

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/release/internal/debian"
)

func TestWrite(t *testing.T) {
	program, err := os.Executable() // this test is a Go program, too
	require.NoError(t, err)
	packages, err := debian.Runtime("arm64")
	require.NoError(t, err)
	of := Subject{
		Type: cdx.ComponentTypeContainer, Name: "thing", Version: "1.2.3",
		Programs: []string{program}, Packages: packages,
	}
	var first, second bytes.Buffer
	require.NoError(t, Write(&first, of))
	require.NoError(t, Write(&second, of))
	assert.Equal(t, first.String(), second.String())

	var bom cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(&first, cdx.BOMFileFormatJSON).Decode(&bom))
	names := map[string]bool{}
	for _, c := range *bom.Components {
		names[c.Name] = true
	}
	for _, want := range []string{filepath.Base(program), "stdlib", "libc6", "libgcc-s1"} {
		assert.True(t, names[want], want)
	}
	refs := map[string]bool{"thing": true}
	for _, c := range *bom.Components {
		refs[c.BOMRef] = true
	}
	for _, d := range *bom.Dependencies {
		assert.True(t, refs[d.Ref], d.Ref)
		for _, on := range *d.Dependencies {
			assert.True(t, refs[on], on)
		}
	}
	require.ErrorContains(t, Write(&second, Subject{Programs: []string{"/etc/passwd"}}), "/etc/passwd")
}

// A program of another project has that project's module, too.
func TestModulesIn(t *testing.T) {
	names := func(main debug.Module) (names []string) {
		for _, m := range modulesIn(&debug.BuildInfo{GoVersion: "go1.26.8", Main: main, Deps: []*debug.Module{{Path: "c", Version: "v1.0.0"}}}) {
			names = append(names, m.PackageURL)
		}
		return names
	}
	assert.Equal(t, []string{"pkg:golang/stdlib@go1.26.8", "pkg:golang/c@v1.0.0"}, names(debug.Module{Path: "a", Version: "(devel)"}))
	assert.Equal(t, []string{"pkg:golang/stdlib@go1.26.8", "pkg:golang/a@v1.2.0", "pkg:golang/c@v1.0.0"},
		names(debug.Module{Path: "a", Version: "v1.2.0", Sum: "h1:x"}))
}
