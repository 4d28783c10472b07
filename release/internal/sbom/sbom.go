package sbom

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/tranche-dev/tranche/release/internal/debian"
)

// Subject is what a bill of materials is of.
type Subject struct {
	// Type is a container, or an application.
	Type          cdx.ComponentType
	Name, Version string
	// Programs are the Go programs in it, by path on this machine.
	Programs []string
	// Packages are the Debian packages in it.
	Packages []debian.Package
}

// Write lists each program, the modules that it is built from, and the packages. The
// modules are those that the Go linker has recorded in the program. Equal subjects give
// equal bytes: there is neither a timestamp nor a serial number.
func Write(w io.Writer, of Subject) error {
	bom := cdx.NewBOM()
	subject := cdx.Component{BOMRef: of.Name, Type: of.Type, Name: of.Name, Version: of.Version}
	bom.Metadata = &cdx.Metadata{Component: &subject}
	parts := map[string]cdx.Component{}
	needs := map[string][]string{}
	for _, program := range of.Programs {
		modules, err := modulesOf(program)
		if err != nil {
			return err
		}
		name := path.Base(program)
		parts[name] = cdx.Component{BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: of.Version}
		needs[of.Name] = append(needs[of.Name], name)
		for _, m := range modules {
			parts[m.BOMRef] = m
			needs[name] = append(needs[name], m.BOMRef)
		}
	}
	for _, p := range of.Packages {
		parts[p.PURL()] = cdx.Component{
			BOMRef: p.PURL(), Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: p.PURL(),
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: p.SHA256}},
		}
		needs[of.Name] = append(needs[of.Name], p.PURL())
	}
	components := slices.SortedFunc(maps.Values(parts), func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	bom.Components = &components
	var dependencies []cdx.Dependency
	for _, ref := range slices.Sorted(maps.Keys(needs)) {
		list := slices.Compact(slices.Sorted(slices.Values(needs[ref])))
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &list})
	}
	bom.Dependencies = &dependencies
	// 1.6: not every reader knows the newest version of the format.
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// modulesOf are the Go modules in a program, and Go's standard library.
func modulesOf(program string) ([]cdx.Component, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read the Go modules of %s: %w", program, err)
	}
	return modulesIn(info), nil
}

func modulesIn(info *buildinfo.BuildInfo) []cdx.Component {
	modules := []cdx.Component{module("stdlib", info.GoVersion)}
	// A program of another project is that project's main module. Its own version is that of the subject.
	if info.Main.Sum != "" {
		modules = append(modules, module(info.Main.Path, info.Main.Version))
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, module(m.Path, m.Version))
	}
	return modules
}

func module(path, version string) cdx.Component {
	purl := "pkg:golang/" + path + "@" + version
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
}
