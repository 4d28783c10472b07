// Package claimtemplate has the names of ResourceClaimTemplates that say what they ask for,
// such as tranche-fraction-500 and tranche-memory-2000mi. An admission policy cannot create
// objects, but it can write such a name into a pod; whoever reads the name knows the template.
//
// The chart's admission policies write these names (templates/_translate.tpl), the controller
// reads them. projects.go has the keys of other projects in whose way pods ask for GPUs.
package claimtemplate
