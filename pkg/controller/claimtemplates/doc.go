// Package claimtemplates creates the ResourceClaimTemplates that pods name and that say in
// their name what they ask for (package claimtemplate). Admission policies of the chart write
// such names into pods of other projects; a policy cannot create the template.
//
// It works in namespaces with the label tranche.dev/translate only, touches only templates with
// its own label, and keeps a limited number of them in each namespace. It also warns about pods
// that run without a GPU because nobody reads their annotations.
//
// reconciler.go decides for one namespace, setup.go adds it to a manager.
package claimtemplates
