au BufRead,BufNewFile *.kds set filetype=kds
