
J dDÛIkL¡»“=äËjÂýÁüÇ·B‚AJL~¸ŽHöÊ¹N