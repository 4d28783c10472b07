// Package sbom writes bills of materials in CycloneDX's format.
package sbom
