" Made from grammar/kds.lark by `python -m kdsl.lsp.keywords`: edit that, not this.
if exists('b:current_syntax')
  finish
endif
syn case match
syn sync fromstart
syn match kdsSign /!=\|\*\*\|\.\.\|<=\|==\|>=\|%\|\*\|+\|-\|\/\|<\|=\|>/
syn match kdsDeclaration /\%([A-Za-z0-9_.]\)\@1<!\%(instruction\|operator\|edition\|expect\|tactic\|target\|rule\|use\)\%(\w\|\.\w*\a\)\@!\%(\s\+[[:alnum:]_\"]\)\@=/
syn match kdsClause /\%([A-Za-z0-9_.]\)\@1<!\%(acceptance\|parameters\|schedules\|baseline\|computes\|optional\|requires\|rounding\|compute\|default\|extends\|indices\|measure\|operand\|options\|outputs\|require\|strided\|swizzle\|updated\|before\|blocks\|choose\|define\|either\|ensure\|inputs\|kernel\|packed\|refuse\|stored\|unroll\|vector\|within\|alias\|apply\|carry\|lacks\|lanes\|order\|place\|roles\|sizes\|views\|warps\|where\|form\|from\|grid\|laws\|like\|next\|over\|part\|pass\|ring\|rows\|scan\|uses\|warp\|when\|for\|has\|pad\|pin\|via\|as\|at\|by\|of\|on\|to\|up\)\%(\w\|\.\w*\a\)\@!\%(\s*\%([:,)]\|==\@!\)\|\s\+warps\?\>\)\@!/
syn match kdsLogic /\%([A-Za-z0-9_.]\)\@1<!\%(else\|then\|and\|not\|if\|in\|is\|or\)\%(\w\|\.\w*\a\)\@!/
syn match kdsMemory /\%([A-Za-z0-9_.]\)\@1<!\%(tensor_memory\|registers\|workspace\|global\|shared\|stack\)\%(\w\|\.\w*\a\)\@!/
syn match kdsMode /\%([A-Za-z0-9_.]\)\@1<!\%(sequential\|parallel\)\%(\w\|\.\w*\a\)\@!/
syn match kdsType /\%([A-Za-z0-9_.]\)\@1<!\%(bf16\|f16\|f32\|i32\|i64\)\%(\w\|\.\w*\a\)\@!/
syn match kdsReduction /\%([A-Za-z0-9_.]\)\@1<!\%(maximum\|sum\)\%(\w\|\.\w*\a\)\@!\%(\s\+over\>\)\@=/
syn match kdsNumber /\%(\w\)\@1<!\%(\d\+\.\d\+\%(e[+-]\?\d\+\)\?\|\d\+\%(e[+-]\?\d\+\)\?\)/
syn match kdsNumber /\%([A-Za-z0-9_.]\)\@1<!\d\+\%(\.\d\+\)\?%\%(\s\+of\>\)\@=/
syn match kdsUnit /\%(\d\s\+\)\@20<=\%(GHz\|KiB\|MiB\|TBps\|TFLOPs\|bytes\|ms\|us\)\>/
syn match kdsString /"[^"]*"/
syn region kdsDoc start=/"""/ end=/"""/
syn match kdsComment /#.*$/
hi def link kdsComment Comment
hi def link kdsString String
hi def link kdsDoc SpecialComment
hi def link kdsNumber Number
hi def link kdsUnit Special
hi def link kdsDeclaration Statement
hi def link kdsClause Keyword
hi def link kdsLogic Operator
hi def link kdsMemory StorageClass
hi def link kdsMode StorageClass
hi def link kdsType Type
hi def link kdsReduction Function
hi def link kdsSign Operator
let b:current_syntax = 'kds'
