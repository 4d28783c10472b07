package hardware_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mayNameVendors are the folders whose subject is the GPUs of certain vendors.
var mayNameVendors = []string{"cmd", "demo", "docs", "pkg/hardware", "pkg/publish/models", "test"}

// namesVendors are the other files that name a vendor, with the reason.
var namesVendors = map[string]string{
	"pkg/claimtemplate/name.go":              "pods of other projects ask for one vendor's GPUs",
	"pkg/claimtemplate/convert/plain.go":     "an extended resource is one vendor's",
	"pkg/cluster/device.go":                  "a device's profile is a mode on AMD's GPUs only, and a ResourceSlice does not say so otherwise",
	"pkg/controller/gpurequests/extended.go": "an extended resource is one vendor's",
	"pkg/profile/partitions.go":              "a PartitionProfile has a field for each vendor: mig and amd",
	"pkg/publish/preview/release.go":         "the tables of models are by vendor",
	"pkg/profile/profile.go":                 "the spelling of a partition's profile tells its vendor",
	"pkg/profile/resolve.go":                 "a PartitionProfile has a field for each vendor: mig and amd",
	"pkg/profile/rules.go":                   "a PartitionProfile has a field for each vendor: mig and amd",
	"pkg/profile/selector.go":                "a rule selects GPUs by vendor",
	"pkg/profile/sharedevices.go":            "strategy MPS and time slices are NVIDIA's",
	"pkg/profile/withouteffect.go":           "which profiles are partitions of mig, and which of xcp",
	"pkg/publish/noderesources/catalog.go":   "GPUs of unknown models are of each vendor",
}

// Code outside the vendors' packages decides by what a GPU or a driver can do, so that a
// new vendor changes none of it.
func TestVendorNames(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if d.IsDir() {
			if slices.Contains(mayNameVendors, name) || d.Name() != "." && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			found[name], err = namesVendor(path)
		}
		return err
	}))
	maps.DeleteFunc(found, func(_ string, names bool) bool { return !names })
	assert.Equal(t, slices.Sorted(maps.Keys(namesVendors)), slices.Sorted(maps.Keys(found)),
		"name no vendor here: ask hardware.Vendor, the driver or gpu.Modes; delete from the list what names none any more")
}

// namesVendor reports whether a file uses gpu.NVIDIA or gpu.AMD.
func namesVendor(path string) (bool, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	names := false
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			x, ok := s.X.(*ast.Ident)
			names = names || ok && x.Name == "gpu" && (s.Sel.Name == "NVIDIA" || s.Sel.Name == "AMD")
		}
		return true
	})
	return names, nil
}
